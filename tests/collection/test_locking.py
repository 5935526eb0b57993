"""Two writers never work on one collection, and one that was killed keeps nobody out."""

import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from paragrain.annotation import AnnotationSettings, BackendSettings, annotate, runs
from paragrain.collection import Collection, ImportReport, Item, Record
from paragrain.collection.shards import writing_alone
from paragrain.errors import ParagrainError
from paragrain.sources import import_scenes

HOLDER = """
import sys, time
from pathlib import Path
from paragrain.collection.shards import writing_alone
with writing_alone(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""

Write = Callable[..., ImportReport]


def records(*ids: str) -> list[Item]:
    return [Item(id, "1", lambda id=id: Record(id)) for id in ids]


def test_a_second_import_is_refused_until_the_first_ends_or_is_killed(
    tmp_path: Path, write: Write
) -> None:
    folder = tmp_path / "c"
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, folder], stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(
            ParagrainError, match=r"another import or annotation is writing to .*c:"
        ):
            write(folder, records("a"))
        assert not (folder / "collection.json").exists()
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.communicate()
    assert write(folder, records("a")).written == 1
    assert write(folder, records("a", "b")).written == 1


def test_an_import_inside_an_import_is_refused(tmp_path: Path, write: Write) -> None:
    def second() -> Record:
        with pytest.raises(ParagrainError, match="another import"):
            write(tmp_path / "c", records("b"))
        return Record("a")

    report = write(tmp_path / "c", [Item("a", "1", second)])
    assert (report.written, report.skipped) == (1, [])


@pytest.mark.parametrize("holder", ["import", "annotation"])
def test_annotation_and_import_keep_each_other_out(
    world: Collection, monkeypatch: pytest.MonkeyPatch, holder: str
) -> None:
    settings = AnnotationSettings(generator=BackendSettings(backend="scenes", model="scenes"))
    inner = partial(annotate, world, settings, limit=1, progress=False)
    if holder == "annotation":
        monkeypatch.setattr(runs, "_describe", lambda *_: import_scenes(world.folder, size=30))
        with pytest.raises(ParagrainError, match="another import or annotation"):
            inner()
        return
    with writing_alone(world.folder), pytest.raises(ParagrainError, match="another import or ann"):
        inner()
