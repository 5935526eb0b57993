"""The log of calls: found again, torn tails dropped, keys that hold all that matters."""

import json
import resource
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from paragrain.annotation import log as module
from paragrain.annotation.calls import Call, Reply
from paragrain.annotation.log import CallLog, call_key
from paragrain.annotation.settings import ImageRule
from paragrain.collection import Record
from paragrain.errors import ParagrainError

CALL = Call("paragraph", Record("7"), "Describe it.", seed=3)
RULE = ImageRule()


def key(number: int) -> str:
    return call_key(replace(CALL, seed=number), "ab", "model", RULE)


def test_replies_are_found_in_the_same_and_in_a_later_process(tmp_path: Path) -> None:
    odd = Reply("é\u2028\n\x00\U0001f600", "length", "no", 12, 3)
    nothing = Reply(None, None)
    with CallLog(tmp_path) as log:
        log.append(key(1), CALL, "model", "1", odd)
        log.append(key(2), CALL, "model", "1", nothing)
        assert log.find(key(1)) == odd
        assert log.find(key(3)) is None
    with CallLog(tmp_path, writing=False) as log:
        assert (log.find(key(1)), log.find(key(2)), len(log)) == (odd, nothing, 2)
    assert len(list(tmp_path.iterdir())) == 1  # nothing was written by the reader


def test_a_line_says_what_it_is_about(tmp_path: Path) -> None:
    with CallLog(tmp_path) as log:
        log.append(key(1), CALL, "qwen", "1", Reply("It is."))
    line = json.loads(next(tmp_path.iterdir()).read_text())
    wanted = {"id": "7", "kind": "paragraph", "model": "qwen", "prompts": "1"}
    assert wanted.items() <= line.items()
    assert line["reply"]["text"] == "It is."


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_a_torn_tail_is_dropped_and_what_stands_before_it_stays(tmp_path: Path, cut: int) -> None:
    with CallLog(tmp_path) as log:
        for number in range(3):
            log.append(key(number), CALL, "model", "1", Reply(f"text {number}"))
    file = next(tmp_path.iterdir())
    file.write_bytes(file.read_bytes()[:-cut])
    with CallLog(tmp_path) as log:
        assert log.find(key(2)) is None
        log.append(key(2), CALL, "model", "1", Reply("again"))
    with CallLog(tmp_path) as log:
        found = [log.find(key(number)) for number in range(3)]
    assert [reply and reply.text for reply in found] == ["text 0", "text 1", "again"]


def test_a_line_damaged_on_disk_is_asked_again(tmp_path: Path) -> None:
    with CallLog(tmp_path) as log:
        log.append(key(0), CALL, "model", "1", Reply("text"))
        log.append(key(1), CALL, "model", "1", Reply("text"))
    file = next(tmp_path.iterdir())
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(lines[0].replace(b'"text"', b"\xff\x00,:") + b"garbage\n" + lines[1])
    with CallLog(tmp_path) as log:
        assert log.find(key(0)) is None
        assert log.find(key(1)) == Reply("text")


def test_millions_of_keys_stay_small_and_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MERGE_AT", 50)
    with CallLog(tmp_path) as log:
        for number in range(333):
            log.append(key(number), CALL, "model", "1", Reply(str(number)))
        log.append(key(5), CALL, "model", "1", Reply("newer"))
        for number in range(333):
            reply = log.find(key(number))
            assert reply is not None
            assert reply.text == ("newer" if number == 5 else str(number))
    with CallLog(tmp_path) as log:
        assert log.find(key(5)) == Reply("newer")
        assert log.find(key(332)) == Reply("332")


@pytest.mark.parametrize(
    "changed",
    [{"prompt": "Describe."}, {"json_prompt": "{}"}, {"temperature": 0.5}, {"top_p": 0.5},
     {"max_tokens": 7}, {"seed": 4}, {"kind": "judge"}],
)  # fmt: skip
def test_the_key_changes_with_all_that_a_reply_depends_on(changed: dict[str, object]) -> None:
    first = call_key(CALL, "ab", "model", RULE)
    assert call_key(replace(CALL, **changed), "ab", "model", RULE) != first


def test_the_key_changes_with_image_model_and_rule_but_not_with_the_record() -> None:
    first = call_key(CALL, "ab", "model", RULE)
    assert call_key(CALL, "cd", "model", RULE) != first
    assert call_key(CALL, "ab", "other", RULE) != first
    assert call_key(CALL, "ab", "model", ImageRule(max_side=512)) != first
    same_image = replace(CALL, record=Record("8", generated=["x"]), schema={})
    assert call_key(same_image, "ab", "model", RULE) == first


def test_two_processes_write_to_files_of_their_own(tmp_path: Path) -> None:
    with CallLog(tmp_path) as one, CallLog(tmp_path) as other:
        one.append(key(1), CALL, "model", "1", Reply("one"))
        other.append(key(2), CALL, "model", "1", Reply("other"))
    with CallLog(tmp_path) as log:
        assert (log.find(key(1)), log.find(key(2))) == (Reply("one"), Reply("other"))


def test_a_full_disk_is_an_error_and_spoils_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with CallLog(tmp_path) as log:
        log.append(key(1), CALL, "model", "1", Reply("one"))
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        size = next(tmp_path.iterdir()).stat().st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 40, limits[1]))
        try:
            with pytest.raises(ParagrainError, match="make room"):
                log.append(key(2), CALL, "model", "1", Reply("two"))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
            signal.signal(signal.SIGXFSZ, before)
        log.append(key(3), CALL, "model", "1", Reply("three"))
    with CallLog(tmp_path) as log:
        found = [log.find(key(number)) for number in (1, 2, 3)]
    assert [reply and reply.text for reply in found] == ["one", None, "three"]


def test_an_empty_file_that_goes_meanwhile_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone.jsonl").write_text("")
    real = Path.glob

    def glob(self: Path, pattern: str) -> list[Path]:
        found = list(real(self, pattern))
        (tmp_path / "gone.jsonl").unlink(missing_ok=True)  # by the process that made it
        return found

    monkeypatch.setattr(Path, "glob", glob)
    with CallLog(tmp_path) as log:
        assert len(log) == 0
