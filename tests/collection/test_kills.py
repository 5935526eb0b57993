"""An import killed at any moment continues to the end that an undisturbed one has."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import PIPE

import pytest

from paragrain.collection import Collection, ImportReport, Item

Files = Callable[[Path], dict[str, bytes]]

KILLED = """
import io, json, os, signal, sys
from pathlib import Path
from PIL import Image
from paragrain.collection import ImageRef, Item, Record, shards, write_collection, writing

def perhaps_die(here):
    global left
    if here == what:
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)

def dying(here, function):
    def call(*args, **options):
        perhaps_die(here)
        return function(*args, **options)
    return call

def item(n):
    def make():
        perhaps_die("make")
        buffer = io.BytesIO()
        Image.new("RGB", (8, 8), (n % 256, 20, 200)).save(buffer, "PNG")
        name = f"i{n:03d}"
        return Record(name, ImageRef(buffer.getvalue(), f"{name}.png"), captions=[f"caption {n}"])
    return Item(f"i{n:03d}", "2" if count > 30 and n == 4 else "1", make)

shards.write_text = dying("manifest", shards.write_text)
writing.write_json = dying("info", writing.write_json)
shards.to_table = dying("table", shards.to_table)
Path.replace = dying("rename", Path.replace)
Path.unlink = dying("unlink", Path.unlink)

def run():
    numbers = [n for n in range(count) if count <= 30 or n not in (7, 20, 21, 22, 23, 24)]
    entries = [item(n) for n in numbers]
    write_collection(folder, entries, name="k", source="k", shard_rows=5, progress=False)

from paragrain.collection.fields import to_table
to_table([Record("a", captions=["b"])])  # so that pyarrow's late imports are done once for all
for line in sys.stdin:
    folder, point, count = json.loads(line)
    folder = Path(folder)
    what, _, number = point.partition(":")
    left = int(number or 0)
    child = os.fork()
    if not child:
        run()
        os._exit(0)
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class Importer:
    """A process that runs imports, each in a child of its own, which dies where it is told."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", KILLED], stdin=PIPE, stdout=PIPE, text=True
        )

    def start(self, folder: Path, point: str, count: int) -> int:
        """Begin an import; return the child's process id."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([str(folder), point, count]) + "\n")
        self.process.stdin.flush()
        return self._number()

    def end(self) -> int:
        """Wait for it; return its exit code."""
        return self._number()

    def run(self, folder: Path, point: str, count: int) -> int:
        self.start(folder, point, count)
        return self.end()

    def _number(self) -> int:
        assert self.process.stdout is not None
        return int(self.process.stdout.readline())


@pytest.fixture(scope="module")
def importer() -> Iterator[Importer]:
    importer = Importer()
    yield importer
    assert importer.process.stdin is not None
    importer.process.stdin.close()
    importer.process.wait(10)


@pytest.fixture(scope="module")
def undisturbed(
    tmp_path_factory: pytest.TempPathFactory, importer: Importer, files: Files
) -> dict[int, dict[str, bytes]]:
    """Files of a first import of 30 records, and of an update that changes, drops and adds."""
    folder = tmp_path_factory.mktemp("undisturbed") / "c"
    results = {}
    for count in (30, 40):
        assert importer.run(folder, "never", count) == 0
        results[count] = files(folder)
    return results


@pytest.mark.parametrize(
    "point",
    ["rename:0", "make:13", "table:3", "rename:4", "manifest:2", "info:1", "rename:13"],
)
def test_a_killed_import_continues_to_the_same_end(
    point: str,
    tmp_path: Path,
    importer: Importer,
    files: Files,
    undisturbed: dict[int, dict[str, bytes]],
) -> None:
    folder = tmp_path / "c"
    assert importer.run(folder, point, 30) == -signal.SIGKILL
    there = sorted(folder.glob("records/*.parquet"))
    if there:  # what is there can be read, and says that it is not all
        half = Collection.open(folder)
        assert len(half) == 5 * len(there)
        assert half.problems[0][1].startswith("the import was interrupted")
    assert importer.run(folder, "never", 30) == 0
    assert files(folder) == undisturbed[30]


@pytest.mark.parametrize("point", ["rename:1", "rename:3", "manifest:1", "unlink:3", "make:6"])
def test_a_killed_update_ends_with_the_same_records(
    point: str,
    tmp_path: Path,
    importer: Importer,
    files: Files,
    undisturbed: dict[int, dict[str, bytes]],
) -> None:
    folder, whole = tmp_path / "c", tmp_path / "whole"
    for target, version in ((folder, 30), (whole, 40)):
        for name, data in undisturbed[version].items():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            (target / name).write_bytes(data)
    assert importer.run(folder, point, 40) == -signal.SIGKILL
    assert Collection.open(folder).problems[1:] == []  # never a record twice
    assert importer.run(folder, "never", 40) == 0
    updated, expected = Collection.open(folder), Collection.open(whole)
    assert sorted(updated.ids()) == sorted(expected.ids())
    assert updated.fingerprint == expected.fingerprint
    assert updated.splits == expected.splits
    assert not [name for name in files(folder) if ".tmp" in name]


def test_a_kill_from_outside_at_any_moment(
    tmp_path: Path, importer: Importer, files: Files, undisturbed: dict[int, dict[str, bytes]]
) -> None:
    folder = tmp_path / "c"
    child = importer.start(folder, "never", 30)
    deadline = time.monotonic() + 30
    while not list(folder.glob("records/*")) and time.monotonic() < deadline:
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    assert importer.end() == -signal.SIGKILL
    assert importer.run(folder, "never", 30) == 0
    assert files(folder) == undisturbed[30]


def test_a_damaged_shard_is_made_again(
    tmp_path: Path,
    items: Callable[..., list[Item]],
    write: Callable[..., ImportReport],
    files: Files,
) -> None:
    folder = tmp_path / "c"
    write(folder, items(6), shard_rows=3)
    before = files(folder)
    shard = folder / "records" / "part-00001.parquet"
    shard.write_bytes(shard.read_bytes()[:100])
    broken = Collection.open(folder)
    assert len(broken) == 3
    assert broken.problems[0][0] == "part-00001.parquet"
    report = write(folder, items(6), shard_rows=3)
    assert report.written == 3
    (problem,) = report.skipped  # it may have held what somebody wrote, so it is not deleted
    assert problem[0] == "part-00001.parquet"
    assert "damaged/part-00001.parquet" in problem[1]
    aside = folder / "damaged" / "part-00001.parquet"
    assert aside.stat().st_size == 100
    assert write(folder, items(6), shard_rows=3).skipped == []
    assert {n: b for n, b in files(folder).items() if not n.startswith("damaged/")} == before
