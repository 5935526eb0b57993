"""The guide's nested field, added as the guide says, in a copy of the package."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from paragrain.collection import Collection

ROOT = Path(__file__).parents[2]
SECTION = (ROOT / "docs" / "adding.md").read_text("utf-8").split("\n## A nested field\n")[1]
SECTION = SECTION.split("\n## ")[0]

PLAIN = """
import sys
from pathlib import Path
from paragrain.collection import Collection, fields, update_records, write_collection
from paragrain.sources import import_scenes

assert fields.NESTED_FIELDS == ("regions",)
old, new = Path(sys.argv[1]), Path(sys.argv[2])
import_scenes(new, size=4, seed=5, progress=False)
print(Collection.open(new).fingerprint)
(file,) = Collection.open(old).files()
update_records(old, file, {Collection.open(old).ids()[0]: {"paragraph": "New. Words."}})
assert import_scenes(old, size=4, seed=5, progress=False).written == 0
"""

MIXED = """
import json
from pathlib import Path
import duckdb, pyarrow.parquet as pq
from datasets import load_dataset
from paragrain.collection import Collection, Item, Record, update_records, write_collection
from paragrain.errors import UsageError

region = {"id": "1", "label": "\u00e9", "box": [0.1, 2]}
def item(n, stamp="1"):
    return Item(f"i{n}", stamp, lambda: Record(f"i{n}", regions=[region] if n == 3 else []))
def write(items):
    return write_collection("mixed", items, name="m", source="m", shard_rows=2, progress=False)
write([item(n) for n in range(6)])
columns = {tuple(pq.read_schema(file).names) for file in Collection.open("mixed").files()}
assert len(columns) == 1 and "regions" in columns.pop()
assert len(load_dataset("parquet", data_files="mixed/records/*.parquet", split="train")) == 6
assert duckdb.sql("select sum(len(regions)) from 'mixed/records/*.parquet'").fetchall() == [(1,)]
fingerprint = Collection.open("mixed").fingerprint
files = {path: path.read_bytes() for path in Path("mixed").rglob("*") if path.is_file()}
assert write([item(n) for n in range(6)]).kept == 6
assert {path: path.read_bytes() for path in files} == files
there = Collection.open("mixed").get("i3")["i3"].regions
file = next(f for f, ids in Collection.open("mixed").files().items() if "i3" in ids)
assert update_records(Path("mixed"), file, {"i3": {"regions": [region]}}) == 0  # the same again
for wrong in ([{"box": "no"}], [{"colour": "red"}], {"id": "1"}, [{"label": "\\ud800"}]):
    try:
        update_records(Path("mixed"), file, {"i3": {"regions": wrong}})
    except UsageError:
        continue
    raise AssertionError(wrong)
assert update_records(Path("mixed"), file, {"i3": {"regions": []}}) == 1
assert Collection.open("mixed").fingerprint != fingerprint
assert update_records(Path("mixed"), file, {"i3": {"regions": [region]}}) == 1
assert Collection.open("mixed").fingerprint == fingerprint
bad = Item("bad", "1", lambda: Record("bad", regions=[{"box": [None, "x"]}]))
assert [id for id, _ in write([*map(item, range(6)), bad]).skipped] == ["bad"]
write([item(n) for n in range(6) if n != 3])  # waits, by its id, since it has no picture
line = json.loads(Path("mixed/kept_texts.jsonl").read_text())
assert line["texts"] == {"regions": there}
write([Item("i3", "2", lambda: Record("i3")), *(item(n) for n in range(6) if n != 3)])
assert Collection.open("mixed").get("i3")["i3"].regions == there
"""

IMPORTED = """
from pathlib import Path
import pyarrow as pa, pyarrow.parquet as pq
from paragrain.collection import Collection
from paragrain.sources import import_parquet

from PIL import Image
import io
data = io.BytesIO()
Image.new("RGB", (8, 8), "red").save(data, "PNG")
image = {"bytes": data.getvalue(), "path": "a.png"}
regions = [[{"label": "x", "box": [0.5], "score": 3}], None]
columns = {"id": ["a", "b"], "image": [image] * 2, "caption": ["c", "d"], "regions": regions}
table = pa.table(columns)
Path("source").mkdir()
pq.write_table(table, "source/train.parquet")
import_parquet(Path("source"), Path("out"), progress=False)
records = Collection.open("out").get(["a", "b"], images=False)
assert [r["label"] for r in records["a"].regions] == ["x"], records
assert records["b"].regions == []
"""


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", SECTION, re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def with_regions(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """Run Python code with a package to whose table the guide's lines were added."""
    place = tmp_path_factory.mktemp("package")
    skip = shutil.ignore_patterns("models", "__pycache__")
    shutil.copytree(ROOT / "src" / "paragrain", place / "paragrain", ignore=skip)
    table = place / "paragrain" / "collection" / "fields.py"
    (patch,) = blocks("diff")
    before, *added = patch.splitlines()
    assert all(line.startswith("+") for line in added)
    text = table.read_text("utf-8")
    assert text.count(before[1:]) == 1
    new = "\n".join([before[1:], *(line[1:] for line in added)])
    table.write_text(text.replace(before[1:], new), "utf-8")

    def run(code: str, folder: Path, *arguments: object) -> str:
        environment = {**os.environ, "PYTHONPATH": str(place), "HF_HOME": str(folder / "hf")}
        command = [sys.executable, "-c", code, *map(str, arguments)]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def test_the_nested_field_of_the_guide_works(
    with_regions: Callable[..., str], tmp_path: Path
) -> None:
    head = "import io\nfrom pathlib import Path\nfrom PIL import Image\n"
    with_regions(head + "\n".join(blocks("python")), tmp_path)


def test_a_new_field_changes_no_fingerprint_and_no_byte_of_a_collection_without_it(
    with_regions: Callable[..., str], tmp_path: Path, files: Callable[[Path], dict[str, bytes]]
) -> None:
    from paragrain.sources import import_scenes

    import_scenes(tmp_path / "old", size=4, seed=5, progress=False)
    before, fingerprint = files(tmp_path / "old"), Collection.open(tmp_path / "old").fingerprint
    said = with_regions(PLAIN, tmp_path, tmp_path / "old", tmp_path / "new")
    assert said.strip() == fingerprint
    assert files(tmp_path / "new") == before


def test_files_with_and_without_it_have_the_same_columns(
    with_regions: Callable[..., str], tmp_path: Path
) -> None:
    with_regions(MIXED, tmp_path)


def test_it_comes_in_from_other_parquet_files(
    with_regions: Callable[..., str], tmp_path: Path
) -> None:
    with_regions(IMPORTED, tmp_path)
