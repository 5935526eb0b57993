"""Settings: what is refused, and what names a model."""

import json
import shutil
from pathlib import Path

import pytest

from paragrain.annotation import (
    AnnotationSettings,
    BackendSettings,
    SceneErrors,
    checked,
    run_settings,
)
from paragrain.annotation.settings import run_name
from paragrain.errors import UsageError


@pytest.mark.parametrize("endpoint", ["localhost:8000", "ftp://host/v1", "http://[bad", "http://"])
def test_an_endpoint_that_is_no_address_is_refused_without_being_shown(endpoint: str) -> None:
    secret = endpoint.replace("//", "//user:s3cret@")
    for text in (endpoint, secret):
        with pytest.raises(UsageError, match="endpoint cannot be used") as error:
            checked(BackendSettings, model="m", endpoint=text)
        assert "s3cret" not in str(error.value)


@pytest.mark.parametrize(
    "wrong",
    [{"num_candidates": 0}, {"min_score": 11}, {"temperature": -1}, {"top_p": 0},
     {"max_retries": -1},
     {"texts": ()}, {"texts": ("captions", "captions")}, {"colour": 1}],
)  # fmt: skip
def test_values_out_of_range_are_one_sentence(wrong: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        checked(AnnotationSettings, **{"generator": {"model": "m"}, **wrong})


def test_the_name_of_a_local_model_tells_its_weights_and_not_its_place(tmp_path: Path) -> None:
    def name(folder: Path) -> str:
        return BackendSettings(backend="transformers", model=str(folder)).name

    first = tmp_path / "a" / "checkpoint-1000"
    first.mkdir(parents=True)
    (first / "config.json").write_text(json.dumps({"model_type": "llava"}))
    (first / "model.safetensors").write_bytes(b"0" * 200_000)
    copy = Path(shutil.copytree(first, tmp_path / "b" / "checkpoint-1000"))
    other = Path(shutil.copytree(first, tmp_path / "c" / "checkpoint-1000"))
    (other / "model.safetensors").write_bytes(b"0" * 199_999 + b"1")
    assert name(first) == name(copy) != name(other)
    assert name(first).startswith("checkpoint-1000 ")
    assert BackendSettings(model="Qwen/Qwen2-VL").name == "Qwen/Qwen2-VL"


def test_the_name_of_a_run_tells_what_is_written_and_not_how_it_is_asked() -> None:
    def run(**changes: object) -> str:
        return run_name(checked(AnnotationSettings, generator={"model": "m", **changes}))

    assert run() == run(
        max_concurrency=3, endpoint="http://elsewhere/v1", timeout=1, structured="off"
    )
    assert len({run(), run(model="n"), run(backend="scenes")}) == 3
    errors = SceneErrors(lenient=0.1)
    assert run(backend="scenes") != run(backend="scenes", errors=errors)


def test_the_judge_has_the_writers_server_and_key_unless_it_has_its_own() -> None:
    values = {"endpoint": "http://a/v1", "model": "m", "key_env": "A", "timeout": 9}
    same, _ = run_settings(values)
    assert same.judge == same.generator
    named, _ = run_settings({**values, "judge": "j"})
    assert named.judge == same.generator.model_copy(update={"model": "j"})
    away, _ = run_settings(
        {**values, "judge": "j", "judge_endpoint": "http://b/v1", "judge_key_env": "B"}
    )
    changes = {"model": "j", "endpoint": "http://b/v1", "key_env": "B"}
    assert away.judge == same.generator.model_copy(update=changes)
    local, _ = run_settings(
        {"backend": "transformers", "model": "f", "judge": "j", "judge_endpoint": "http://b/v1"}
    )
    assert local.judge
    assert (local.judge.backend, local.generator.backend) == ("openai", "transformers")
    assert run_settings({**values, "judge": "none"})[0].judge is None


def test_what_is_no_key_of_a_settings_file_is_named() -> None:
    for name in ("generator", "image", "tries"):
        with pytest.raises(UsageError, match=f"there is no setting '{name}': choose from"):
            run_settings({name: 1})
