"""Models of this process: tiny ones of random weights, whose texts are noise."""

import asyncio
import importlib.util
import io
import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from paragrain.annotation import AnnotationSettings
from paragrain.annotation.backends.local import LocalBackend
from paragrain.annotation.calls import Call, Reply, RequestFailed
from paragrain.annotation.pictures import PreparedImage
from paragrain.annotation.settings import BackendSettings
from paragrain.collection import Record
from paragrain.errors import ParagrainError, UsageError

from .photos import run
from .tiny_vlms import make_tiny_llava, make_tiny_mllama, make_tiny_qwen2_vl

HAS_TORCHVISION = importlib.util.find_spec("torchvision") is not None

SHORT = "What is this?"
LONG = "Look at the image closely and say in one sentence what it shows. " * 8


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def llava(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_llava(tmp_path_factory.mktemp("models") / "tiny-llava")


@pytest.fixture(scope="module")
def mllama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_mllama(tmp_path_factory.mktemp("models") / "tiny-mllama")


@pytest.fixture(scope="module")
def qwen2_vl(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_qwen2_vl(tmp_path_factory.mktemp("models") / "tiny-qwen2-vl")


def settings(model: Path | str, **others: Any) -> BackendSettings:
    return BackendSettings(
        **{"backend": "transformers", "model": str(model), "device": "cpu", **others}
    )


def picture(seed: int, width: int = 60, height: int = 40) -> PreparedImage:
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    data = io.BytesIO()
    Image.fromarray(pixels).save(data, "JPEG")
    return PreparedImage(data.getvalue(), width, height)


def call(prompt: str = SHORT, **others: Any) -> Call:
    return Call("paragraph", Record("1"), prompt, **{"max_tokens": 12, **others})


def answers(backend: LocalBackend, *asked: tuple[Call, PreparedImage]) -> list[Any]:
    """Ask all at once; replies and errors, in order."""

    async def run() -> list[Any]:
        return await asyncio.gather(*(backend.ask(*one) for one in asked), return_exceptions=True)

    return asyncio.run(run())


@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch) -> Callable[[LocalBackend], list[int]]:
    """The sizes of the batches that a backend's model generates, from now on."""

    def watch(backend: LocalBackend) -> list[int]:
        sizes: list[int] = []
        generate = backend._vlm.model.generate

        def counted(**inputs: Any) -> Any:
            sizes.append(len(inputs["input_ids"]))
            return generate(**inputs)

        monkeypatch.setattr(backend._vlm.model, "generate", counted)
        return sizes

    return watch


def check_batches(model: Path, batches: Callable[[LocalBackend], list[int]]) -> None:
    """Greedy or drawn, a reply is the same alone and in company; the image matters to it."""
    backend = LocalBackend(settings(model))
    sizes = batches(backend)
    asked = [
        (call(SHORT), picture(0)),
        (call(LONG), picture(1, 200, 50)),
        (call(SHORT), picture(2, 50, 120)),
    ]
    drawn = [
        (call(one.prompt, temperature=0.7, top_p=0.9, seed=seed), image)
        for seed, (one, image) in enumerate(asked)
    ]
    together = [*answers(backend, *asked), *answers(backend, *drawn)]
    assert sizes == [3, 3]
    alone = [answers(backend, one)[0] for one in [*asked, *drawn]]
    assert together == alone
    assert len({reply.text for reply in alone}) == 6
    assert {reply.completion_tokens for reply in alone} == {12}
    assert {reply.finish for reply in alone} == {"length"}
    assert alone[1].prompt_tokens - alone[0].prompt_tokens >= len(LONG) - len(SHORT)
    asyncio.run(backend.close())


def test_llava_answers_alone_as_in_company(
    llava: Path, batches: Callable[[LocalBackend], list[int]]
) -> None:
    check_batches(llava, batches)


def test_llama_vision_answers_alone_as_in_company(
    mllama: Path, batches: Callable[[LocalBackend], list[int]]
) -> None:
    check_batches(mllama, batches)


@pytest.mark.skipif(not HAS_TORCHVISION, reason="the processor of Qwen2-VL needs torchvision")
def test_qwen2_vl_answers_alone_as_in_company(
    qwen2_vl: Path, batches: Callable[[LocalBackend], list[int]]
) -> None:
    check_batches(qwen2_vl, batches)


@pytest.mark.skipif(HAS_TORCHVISION, reason="torchvision is here")
def test_qwen2_vl_says_that_it_needs_torchvision(qwen2_vl: Path) -> None:
    with pytest.raises(ParagrainError, match=r"needs torchvision: `pip install torchvision`$"):
        LocalBackend(settings(qwen2_vl))


def test_name_and_concurrency(llava: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert settings(llava).name.startswith("tiny-llava ")
    monkeypatch.chdir(llava)
    backend = LocalBackend(settings(".", batch_size=3))
    assert backend.max_concurrency == 6
    assert LocalBackend(settings(llava, batch_size=8, max_concurrency=5)).max_concurrency == 5


def test_only_calls_of_equal_sampling_share_a_batch(
    llava: Path, batches: Callable[[LocalBackend], list[int]]
) -> None:
    backend = LocalBackend(settings(llava, batch_size=4))
    sizes = batches(backend)
    limits = [3, 5, 3, 5, 5, 3, 3, 3]  # the larger group first, never more than four
    replies = answers(backend, *((call(max_tokens=limit), picture(0)) for limit in limits))
    assert [reply.completion_tokens for reply in replies] == limits
    assert sizes == [4, 3, 1]


def test_seed_temperature_and_top_p_act(llava: Path) -> None:
    backend = LocalBackend(settings(llava, batch_size=16))

    def text(**sampling: Any) -> str:
        return answers(backend, (call(**sampling), picture(0)))[0].text

    seeds = [(call(temperature=1.0, seed=seed), picture(0)) for seed in range(16)]
    assert len({reply.text for reply in answers(backend, *seeds)}) > 10
    assert text(temperature=1.0, seed=7) == text(temperature=1.0, seed=7)
    greedy = text()
    assert text(temperature=1e-4, seed=1) == greedy
    assert text(temperature=2.0, top_p=1e-6, seed=1) == greedy
    assert text(seed=1) == greedy


def test_draws_follow_the_distribution() -> None:
    """4,000 draws against the probabilities, one of which is zero."""
    from paragrain.annotation.backends.local import _Noise

    logits = torch.tensor([2.0, 1.0, 0.0, -1.0, -torch.inf])
    expected = torch.softmax(logits / 0.7, 0)
    noise = _Noise(range(4000), torch.device("cpu"))
    drawn = noise(torch.zeros(4000, 1), (logits / 0.7).expand(4000, -1)).argmax(-1)
    shares = torch.bincount(drawn, minlength=5) / 4000
    assert torch.allclose(shares, expected, atol=0.03)
    assert shares[-1] == 0


def test_end_token_ends_a_reply(llava: Path, tmp_path: Path) -> None:
    """With a quarter of all bytes as end tokens, replies of one batch end at different places."""
    folder = Path(shutil.copytree(llava, tmp_path / "ends"))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [*range(4, 68)]}))
    backend = LocalBackend(settings(folder, batch_size=16))
    asked = [(call(temperature=1.0, seed=seed, max_tokens=4), picture(0)) for seed in range(16)]
    replies = answers(backend, *asked)
    lengths = {reply.completion_tokens for reply in replies if reply.finish == "stop"}
    assert len(lengths) > 1
    assert {reply.completion_tokens for reply in replies if reply.finish == "length"} == {4}
    assert all("<" not in reply.text for reply in replies)  # neither <pad> nor </s>


def test_generation_settings_of_the_checkpoint_do_not_count(llava: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(llava, tmp_path / "settings"))
    sneaky = {"do_sample": True, "top_k": 1, "repetition_penalty": 5.0, "num_beams": 3}
    (folder / "generation_config.json").write_text(
        json.dumps({**sneaky, "no_repeat_ngram_size": 1, "max_length": 3, "min_new_tokens": 99})
    )
    asked = [(call(), picture(0)), (call(temperature=1.0, seed=3), picture(0))]
    assert answers(LocalBackend(settings(folder)), *asked) == answers(
        LocalBackend(settings(llava)), *asked
    )


def test_control_tokens_in_a_caption_are_plain_text(llava: Path) -> None:
    backend = LocalBackend(settings(llava))
    (reply,) = answers(backend, (call("It says <image> </s><pad>."), picture(0)))
    assert isinstance(reply, Reply)


def test_bad_image_fails_alone(llava: Path) -> None:
    backend = LocalBackend(settings(llava))
    good = [(call(), picture(0)), (call(LONG), picture(1))]
    broken = (call(), PreparedImage(picture(0).data[:200], 60, 40))
    first, failed, second = answers(backend, good[0], broken, good[1])
    assert [first, second] == answers(backend, *good)
    assert isinstance(failed, RequestFailed)
    assert not failed.fatal
    assert str(failed) == f"{settings(llava).name} failed: BadImage: truncated"
    assert backend.notes == []


def raising(
    backend: LocalBackend,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    when: Callable[[int], bool],
) -> list[int]:
    """Make the model fail for batches of some sizes; the sizes tried, from now on."""
    sizes: list[int] = []
    generate = backend._vlm.model.generate

    def failing(**inputs: Any) -> Any:
        sizes.append(len(inputs["input_ids"]))
        if when(sizes[-1]):
            raise error
        return generate(**inputs)

    monkeypatch.setattr(backend._vlm.model, "generate", failing)
    return sizes


def test_out_of_memory_makes_batches_smaller(llava: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = LocalBackend(settings(llava, batch_size=8))
    asked = [(call(), picture(seed)) for seed in range(8)]
    expected = answers(backend, *asked)
    error = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
    sizes = raising(backend, monkeypatch, error, lambda size: size > 2)
    assert answers(backend, *asked) == expected
    assert sizes == [8, 4, 2, 2, 4, 2, 2]
    del sizes[:]
    assert answers(backend, *asked) == expected
    assert sizes == [2, 2, 2, 2]
    assert backend.notes[0] == "out of memory at 8 images a batch: went on with 4"


def test_out_of_memory_for_one_image_is_its_failure(
    llava: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = LocalBackend(settings(llava, batch_size=1))
    error = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
    raising(backend, monkeypatch, error, lambda size: True)
    (failed,) = answers(backend, (call(), picture(0)))
    assert isinstance(failed, RequestFailed)
    assert "CUDA out of memory" in str(failed)
    assert not failed.fatal


def test_an_error_of_cuda_itself_stops_the_run(
    llava: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = LocalBackend(settings(llava))
    error = RuntimeError("CUDA error: device-side assert triggered\nCompile with ...")
    raising(backend, monkeypatch, error, lambda size: True)
    (failed,) = answers(backend, (call(), picture(0)))
    assert failed.fatal
    assert "\n" not in str(failed)


def endless(llava: Path) -> tuple[LocalBackend, Call]:
    """A backend, and a call that keeps it busy for a minute."""
    backend = LocalBackend(settings(llava))
    backend._vlm.model.generation_config.eos_token_id = None
    return backend, call(max_tokens=20_000)


def test_loop_stays_free_and_cancelled_calls_do_no_harm(llava: Path) -> None:
    async def run() -> None:
        backend, long = endless(llava)
        running = asyncio.create_task(backend.ask(long, picture(0)))
        while not backend._running:
            await asyncio.sleep(0.01)
        waiting = asyncio.create_task(backend.ask(call(), picture(0)))
        kept = asyncio.create_task(backend.ask(call(LONG), picture(1)))
        ticks = 0
        while ticks < 5:
            await asyncio.sleep(0.01)
            ticks += 1
        assert not running.done()
        running.cancel()
        waiting.cancel()
        assert isinstance(await asyncio.wait_for(kept, 10), Reply)
        assert running.cancelled()
        await backend.close()

    asyncio.run(run())


def test_close_ends_a_running_batch_and_the_thread(llava: Path) -> None:
    before = set(threading.enumerate())

    async def run() -> None:
        backend, long = endless(llava)
        asked = [asyncio.create_task(backend.ask(long, picture(0)))]
        while not backend._running:
            await asyncio.sleep(0.01)
        asked.append(asyncio.create_task(backend.ask(call(), picture(0))))
        await asyncio.sleep(0.05)
        start = time.monotonic()
        await backend.close()
        assert time.monotonic() - start < 5
        assert [one.cancelled() for one in asked] == [True, True]

    asyncio.run(run())
    assert not any(thread.name.startswith("vlm") for thread in {*threading.enumerate()} - before)


def without(folder: Path, copy: Path, *names: str) -> Path:
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns(*names))
    return copy


def test_what_cannot_be_opened_is_told_in_a_sentence(
    llava: Path, tmp_path: Path, random_blip: Path
) -> None:
    def reason(model: Path | str, **others: Any) -> str:
        with pytest.raises(ParagrainError) as caught:
            LocalBackend(settings(model, **others))
        assert "\n" not in str(caught.value)
        return f"{type(caught.value).__name__}: {caught.value}"

    assert "UsageError: there is no folder /none/such" in reason("/none/such")
    assert "while HF_HUB_OFFLINE is set" in reason("nobody/no-such-model")
    (tmp_path / "model.safetensors").touch()
    assert "is a file" in reason(tmp_path / "model.safetensors")
    assert "cannot be opened" in reason(tmp_path)
    assert "has no chat template" in reason(random_blip)
    assert "has no chat template" in reason(without(llava, tmp_path / "a", "*.jinja"))
    assert "cannot be opened" in reason(without(llava, tmp_path / "b", "*.safetensors"))
    assert "UsageError: the device cuda:99 cannot be used" in reason(llava, device="cuda:99")

    blind = without(llava, tmp_path / "blind")
    (blind / "chat_template.jinja").write_text("{{ messages[0]['content'][-1]['text'] }}")
    assert "leaves the image out" in reason(blind)


def test_missing_weights_are_not_made_up(llava: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    folder = Path(shutil.copytree(llava, tmp_path / "holes"))
    weights = load_file(folder / "model.safetensors")
    removed = next(name for name in weights if name.endswith("lm_head.weight"))
    del weights[removed]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ParagrainError, match=r"lacks 1 of its weights, .*lm_head\.weight among"):
        LocalBackend(settings(folder))


def test_no_schema_can_be_asked_for(llava: Path) -> None:
    with pytest.raises(UsageError, match="cannot be held to a JSON schema"):
        LocalBackend(settings(llava, structured="on"))
    (reply,) = answers(
        LocalBackend(settings(llava)), (call(json_prompt="{}", schema={}, count=5), picture(0))
    )
    assert reply == answers(LocalBackend(settings(llava)), (call(), picture(0)))[0]


def test_whole_runs_of_two_models_end_in_typed_failures(
    llava: Path, mllama: Path, photos: Path
) -> None:
    limits = {f"{kind}_tokens": 8 for kind in ("captions", "negatives", "paragraph", "judge")}
    for writer, judge in [(llava, mllama), (mllama, mllama)]:
        one, other = settings(writer, batch_size=4), settings(judge, batch_size=4)
        chosen = AnnotationSettings(generator=one, judge=other, max_retries=1, **limits)
        report = run(photos, chosen, limit=4)
        assert (report.images, len(report.failed), report.calls) == (4, 4, 4 * 3 * 2)
        assert all("request" not in reason for _, reason in report.failed)
