"""`paragrain annotate` as a user types it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from paragrain.collection import Collection
from paragrain.sources import import_scenes

from .photos import judged, sha_of

Cli = Callable[..., Any]


@pytest.fixture(autouse=True)
def _no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


def test_generator_and_judge_on_servers(paragrain: Cli, photos: Path, stub: Any) -> None:
    stub.script(rules=[judged(8)])
    done = paragrain(
        "annotate", photos, "--endpoint", stub.url, "--model", "writer",
        "--judge-endpoint", stub.url, "--judge", "scorer", "--max-concurrency", 4,
    )  # fmt: skip
    assert done.code == 0, done.err
    assert "8 images, 8 complete" in done.out
    assert "mean score 8.00" in done.out
    record = next(iter(Collection.open(photos).records()))
    assert json.loads(record.annotation or "")["paragraph"]["judge"] == "scorer"
    again = paragrain("annotate", "run", photos, "--endpoint", stub.url, "--model", "writer",
                      "--judge", "scorer", "--json")  # fmt: skip
    assert (again.code, again.json["calls"], again.json["reused"]) == (0, 0, 32)


def test_a_server_with_one_model_need_not_be_told_which(
    paragrain: Cli, photos: Path, stub: Any
) -> None:
    stub.script(models=["the-only-one"])
    done = paragrain("annotate", photos, "--endpoint", stub.url, "--limit", 1, "--json")
    assert done.code == 0, done.err
    record = next(iter(Collection.open(photos).records()))
    assert json.loads(record.annotation or "")["paragraph"]["model"] == "the-only-one"


def test_failures_are_named_and_end_with_3(paragrain: Cli, photos: Path, stub: Any) -> None:
    sick = Collection.open(photos).ids()[3]
    stub.script(
        rules=[{"match": {"image_sha": sha_of(photos, sick)}, "do": {"status": 400}}, judged(8)]
    )
    done = paragrain(
        "annotate", photos, "--endpoint", stub.url, "--model", "m", "--set", "retry_timeout=0.2"
    )
    assert done.code == 3
    assert f"{sick}: captions: request (400" in done.err
    assert "7 complete" in done.out
    told = paragrain("annotate", "status", photos)
    assert told.code == 0
    assert "7 of 8 images complete, 1 failed, 0 to come" in told.out
    assert "failed 1: captions: request (400" in told.out
    value = paragrain("annotate", "status", photos, "--json").json
    assert (value["complete"], value["scores"]) == (7, {"8": 7})


def test_dry_run_asks_nothing_and_writes_nothing(paragrain: Cli, photos: Path, stub: Any) -> None:
    told = paragrain(
        "annotate",
        "--dry-run",
        photos,
        "--set",
        "rate=2",
        "--set",
        "price_in=1",
        "--set",
        "price_out=2",
    )
    assert told.code == 0, told.err
    assert "requests: 32 to 64" in told.out
    assert "time at that rate: 16 s to 32 s" in told.out
    assert "cost at those prices" in told.out
    assert stub.counters()["requests"] == 0
    assert not (photos / "annotation").exists()


def test_check_and_stats(paragrain: Cli, photos: Path, stub: Any) -> None:
    common = ("--endpoint", stub.url, "--model")
    assert paragrain("annotate", photos, *common, "writer").code == 0
    found = paragrain("annotate", "check", photos, *common, "third", "--sample", 6)
    assert found.code == 0, found.err
    assert "writer against third" in found.out
    assert "Spearman" in found.out
    told = paragrain("annotate", "stats", photos, "--model", "blip0")
    assert told.code == 0, told.err
    folder = photos / "annotation" / "stats"
    assert str(folder / "index.html") in told.out
    names = {"token_lengths", "scores", "candidates", "agreement"}
    assert {path.stem for path in folder.glob("*.png")} == names
    page = (folder / "index.html").read_text()
    record = next(iter(Collection.open(photos).records()))
    assert page.count("<div class=sample>") == 6
    assert record.negatives[0] in page or record.id not in page
    value = paragrain("annotate", "stats", photos, "--model", "blip0", "--json").json
    assert value["judges"] == ["writer", "third"]
    assert value["annotation"]["annotated"]["paragraph"] == 8


def test_scenes_and_truth(paragrain: Cli, tmp_path: Path) -> None:
    import_scenes(tmp_path / "world", size=12, seed=2, progress=False)
    done = paragrain(
        "annotate", tmp_path / "world", "--backend", "scenes", "--replace", "--split", "train",
        "--set", "errors.false_caption=1", "--set", "errors.true_negative=1",
    )  # fmt: skip
    assert done.code == 0, done.err
    told = paragrain("annotate", "truth", tmp_path / "world", "--split", "train", "--json")
    rows = {row[0]: row for row in told.json["tables"][0]["rows"]}
    assert rows["captions that are false"][1:3] == [60, 60]
    assert rows["hard negatives that are true"][1:3] == [60, 60]
    assert rows["faultless paragraphs"][1:3] == [12, 12]


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        ((), "there is no model to ask"),
        (("--backend", "transformers"), "needs --model"),
        (("--backend", "vllm", "--model", "m"), "backend is 'vllm'"),
        (("--backend", "scenes"), "holds no drawn scenes"),
        (("--backend", "transformers", "--model", "m", "--endpoint", "http://x"), "asks no server"),
        (("--model", "m", "--set", "errors.lenient=0.1"), "belong to --backend scenes"),
        (("--model", "m", "--set", "speed=3"), "there is no setting 'speed'"),
        (("--model", "m", "--dry-run", "--set", "price_in=3"), "needs both prices"),
        (
            ("--model", "m", "--endpoint", "http://x", "--set", "num_candidates=0"),
            "num_candidates is 0",
        ),
        (("--model", "m", "--endpoint", "localhost:1"), "it is no URL such as"),
        (("--model", "m", "--endpoint", "http://x", "--texts", "captions,poems"), "'poems'"),
        (("--model", "m", "--endpoint", "http://x", "--texts", ""), "at least one"),
        (("--model", "m", "--endpoint", "http://x", "--set", "runner=dask"), "runner is 'dask'"),
        (("--backend", "scenes", "--set", "errors=lenient"), "errors is 'lenient'"),
        (("--backend", "scenes", "--set", "errors.lazy=0.1"), "lazy"),
        (("--model", "m", "--set", "prompts=none.yaml"), "cannot be read"),
        (("--model", "m", "--split", "none", "--endpoint", "http://127.0.0.1:9"), "no split"),
    ],
)
def test_wrong_usage_is_one_sentence(
    paragrain: Cli, photos: Path, args: tuple[str, ...], reason: str
) -> None:
    done = paragrain("annotate", photos, *args)
    assert done.code == 2
    assert reason in done.err
    assert done.err.startswith("paragrain: ")
    assert len(done.err.strip().splitlines()) == 1
    assert "Traceback" not in done.err


def test_a_mistyped_verb_is_not_taken_for_a_folder(paragrain: Cli, photos: Path) -> None:
    done = paragrain("annotate", "statsu", photos)
    assert done.code == 2
    assert "did you mean 'stats'?" in done.err


def test_truth_needs_drawn_scenes(paragrain: Cli, photos: Path) -> None:
    done = paragrain("annotate", "truth", photos)
    assert done.code == 2
    assert "holds no drawn scenes" in done.err


def test_no_answer_at_all_is_a_failure(paragrain: Cli, photos: Path) -> None:
    done = paragrain("annotate", photos, "--endpoint", "http://127.0.0.1:9/v1", "--model", "m",
                     "--set", "retry_timeout=0.2")  # fmt: skip
    assert done.code == 1
    assert "none of the 8 images got an answer" in done.err


def test_each_server_has_a_key_of_its_own(
    paragrain: Cli, photos: Path, stub: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WRITER_KEY", "one-key")
    monkeypatch.setenv("OTHER_KEY", "other-key")
    stub.script(key="one-key", rules=[judged(9)])
    ask = (
        "annotate",
        photos,
        "--endpoint",
        stub.url,
        "--model",
        "m",
        "--set",
        "key_env=WRITER_KEY",
    )
    assert paragrain(*ask, "--texts", "captions").code == 0
    refused = paragrain(*ask, "--judge", "j", "--set", "judge_key_env=OTHER_KEY")
    assert refused.code == 1
    assert f"{stub.url} refuses the key (401): set OTHER_KEY to a valid one" in refused.err


def test_failures_that_more_tries_may_mend_say_so(paragrain: Cli, photos: Path, stub: Any) -> None:
    stub.script(rules=[{"match": {"kind": "captions", "first": 3}, "do": {"text": "No."}}])
    ask = ("annotate", photos, "--endpoint", stub.url, "--model", "m", "--limit", 1)
    first = paragrain(*ask)
    assert first.code == 3
    assert "--set max_retries=3 asks once more" in first.out
    planned = paragrain("annotate", photos, "--model", "m", "--limit", 1, "--dry-run", "--json")
    assert (planned.json["failed"], planned.json["calls"]) == (1, [0, 0])
    assert paragrain(*ask, "--set", "max_retries=3").code == 0
    again = paragrain(*ask)  # what is stored was made by the same model and prompts
    assert again.code == 0
    assert "1 complete" in again.out


def test_settings_of_a_file_yield_to_set_and_both_to_options(
    paragrain: Cli, photos: Path, stub: Any, tmp_path: Path
) -> None:
    file = tmp_path / "annotate.yaml"
    file.write_text(
        f"endpoint: {stub.url}\nmodel: filed\njudge: none\ntexts: [captions]\ncaptions: 3\n"
        "max_side: 36\nmax_retries: 0\n"
    )
    ask = ("annotate", photos, "--config", file, "--limit", 1)
    assert paragrain(*ask, "--set", "captions=4", "--model", "named").code == 0
    record = next(iter(Collection.open(photos).records()))
    assert (len(record.generated), record.negatives, record.paragraph) == (4, [], None)
    assert json.loads(record.annotation or "")["captions"]["model"] == "named"
    described = json.loads((photos / "annotation" / "run.json").read_text())["settings"]
    assert (described["image"]["max_side"], described["max_retries"]) == (36, 0)
    assert described["judge"] is None
