"""The database: replies are found again, whatever happens; keys hold all that matters."""

import json
import resource
import signal
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from paragrain.annotation.calls import Call, Reply
from paragrain.annotation.database import NAME, Database, call_key
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
    with Database(tmp_path) as database:
        database.add_reply(key(1), CALL, "model", "1", odd)
        database.add_reply(key(2), CALL, "model", "1", nothing)
        assert database.reply(key(1)) == odd
        assert database.reply(key(3)) is None
    with Database(tmp_path, writing=False) as database:
        assert (database.reply(key(1)), database.reply(key(2))) == (odd, nothing)
    assert len(list(tmp_path.iterdir())) == 1  # nothing was written by the reader


def test_a_row_says_what_it_is_about(tmp_path: Path) -> None:
    with Database(tmp_path) as database:
        database.add_reply(key(1), CALL, "qwen", "1", Reply("It is."))
    with sqlite3.connect(tmp_path / NAME) as plain:
        (row,) = plain.execute("SELECT id, kind, model, prompts, reply FROM calls")
    assert row[:4] == ("7", "paragraph", "qwen", "1")
    assert json.loads(row[4])["text"] == "It is."


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


KILLED = """
import os, signal, sys
from pathlib import Path
from paragrain.annotation.calls import Call, Reply
from paragrain.annotation.database import Database
from paragrain.collection import Record

database = Database(Path(sys.argv[1]))
for number in range(20):
    call = Call("paragraph", Record("7"), "Describe it.")
    database.add_reply(str(number), call, "model", "1", Reply(f"text {number}"))
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_no_reply_is_lost_when_the_process_is_killed(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], timeout=120)
    assert done.returncode == -signal.SIGKILL
    with Database(tmp_path, writing=False) as reader:
        assert reader.count_replies() == 20
    with Database(tmp_path) as database:
        found = [database.reply(str(number)) for number in range(20)]
    assert found == [Reply(f"text {number}") for number in range(20)]


def test_others_read_while_one_process_writes(tmp_path: Path) -> None:
    with Database(tmp_path) as database:
        database.add_reply(key(1), CALL, "model", "1", Reply("one"))
        with Database(tmp_path, writing=False) as reader:
            database.add_reply(key(2), CALL, "model", "1", Reply("two"))
            assert (reader.reply(key(1)), reader.reply(key(2))) == (Reply("one"), Reply("two"))


def test_a_reader_makes_no_file(tmp_path: Path) -> None:
    with Database(tmp_path / "absent", writing=False) as database:
        assert (database.count_replies(), database.reply(key(1))) == (0, None)
    assert not (tmp_path / "absent").exists()


def test_the_later_of_two_replies_to_a_call_counts(tmp_path: Path) -> None:
    with Database(tmp_path) as database:
        for text in ("older", "newer"):
            database.add_reply(key(1), CALL, "model", "1", Reply(text))
        assert (database.reply(key(1)), database.count_replies()) == (Reply("newer"), 1)


def read_all(folder: Path) -> None:
    with Database(folder) as database:
        for number in range(300):
            database.reply(key(number))


@pytest.mark.parametrize("content", [b"no database at all, by any means" * 200, None])
def test_a_damaged_database_is_named_and_not_touched(tmp_path: Path, content: bytes | None) -> None:
    with Database(tmp_path) as database:
        for number in range(300):
            database.add_reply(key(number), CALL, "model", "1", Reply(f"text {number}"))
    file = tmp_path / NAME
    whole = file.read_bytes()
    file.write_bytes(content or whole[:4096] + b"\xff" * (len(whole) - 4096))
    before = file.read_bytes()
    with pytest.raises(ParagrainError, match=r"is damaged .* move it away"):
        read_all(tmp_path)
    assert file.read_bytes()[100:] == before[100:]


def test_a_full_disk_is_an_error_and_spoils_nothing(tmp_path: Path) -> None:
    with Database(tmp_path) as database:
        database.add_reply(key(1), CALL, "model", "1", Reply("one"))
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        size = max(path.stat().st_size for path in tmp_path.iterdir())
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 40, limits[1]))
        try:
            with pytest.raises(ParagrainError, match="make room"):
                database.add_reply(key(2), CALL, "model", "1", Reply("two"))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
            signal.signal(signal.SIGXFSZ, before)
        database.add_reply(key(3), CALL, "model", "1", Reply("three"))
    with Database(tmp_path) as database:
        found = [database.reply(key(number)) for number in (1, 2, 3)]
    assert [reply and reply.text for reply in found] == ["one", None, "three"]
