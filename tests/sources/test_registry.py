"""Importers by kind: what they remember, how an import is repeated, those of other packages."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from paragrain.collection import Collection
from paragrain.errors import UsageError
from paragrain.sources import IMPORTERS, import_folder, registry, update

PLUGIN = """
import csv
from pathlib import Path
from typing import Annotated, Any, Unpack

from paragrain.cli.import_.options import OutArgument, import_command
from paragrain.collection import ImportReport, WriteOptions
from paragrain.sources import importer
from paragrain.sources.listing import Listing


@importer("herbarium")
def import_herbarium(
    folder: Path, out: Path, *, part: str = "all", **options: Unpack[WriteOptions]
) -> ImportReport:
    listing = Listing(folder / "sheets.csv", folder)
    with (folder / "sheets.csv").open() as file:
        for row in csv.DictReader(file):
            listing.add("row", row["number"], [row["file"]], {"captions": [row["label"]]})
    return listing.write(
        out, name="herbarium", source="herbarium", field="captions", texts=None, **options
    )


@import_command
def herbarium(folder: Path, out: OutArgument, part: str = "all", **options: Any) -> ImportReport:
    "Import a herbarium."
    options.pop("texts", None)
    return import_herbarium(folder, out, part=part, **options)
"""


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    folder = tmp_path / "pictures"
    folder.mkdir()
    for number, name in enumerate(("a.jpg", "b.jpg")):
        Image.new("RGB", (8, 8), (number, 0, 0)).save(folder / name)
    return folder


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The options that reach the writing of a collection, call by call."""
    from paragrain.sources import folder

    calls: list[dict[str, Any]] = []
    write = folder.write_collection

    def spy(*args: Any, **options: Any) -> Any:
        calls.append(options)
        return write(*args, **options)

    monkeypatch.setattr(folder, "write_collection", spy)
    return calls


def remember(folder: Path, kind: str, arguments: dict[str, Any]) -> None:
    """What `write_collection` keeps of an import."""
    file = folder / "collection.json"
    info = json.loads(file.read_text())
    file.write_text(json.dumps({**info, "import": {"kind": kind, "arguments": arguments}}))


def test_an_import_is_told_as_json_can_hold_it(
    pictures: Path, written: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = pictures.parent / "t.csv"
    texts.write_text("file_name,caption\na.jpg,one\n")
    monkeypatch.chdir(pictures.parent)
    import_folder("pictures", "out", texts="t.csv", licence="CC0", verify=True, progress=False)  # type: ignore[arg-type]
    assert written[0]["remember"] == {
        "kind": "folder",
        "arguments": {"folder": str(pictures), "texts": [str(texts)], "licence": "CC0"},
    }
    json.dumps(written[0]["remember"])
    assert (written[0]["licence"], written[0]["verify"]) == ("CC0", True)


def test_what_nobody_asked_for_is_not_remembered(
    pictures: Path, written: list[dict[str, Any]], paragrain: Callable[..., Any]
) -> None:
    out = pictures.parent / "out"
    assert paragrain("import", "folder", pictures, out, "--json").code == 0
    assert written[0]["remember"]["arguments"] == {"folder": str(pictures)}
    assert {key for key, value in written[0].items() if value is not None} == {
        "name", "source", "problems", "notes", "remember", "progress",
    }  # fmt: skip
    paragrain("import", "folder", pictures, out, "--val", "0.5", "--store", "paths", "--verify")
    assert written[1]["remember"]["arguments"] == {
        "folder": str(pictures), "val": 0.5, "store": "paths",
    }  # fmt: skip
    assert (written[1]["verify"], written[1]["val"]) == (True, 0.5)


def test_update_repeats_the_import(pictures: Path, paragrain: Callable[..., Any]) -> None:
    out, texts = pictures.parent / "out", pictures.parent / "t.csv"
    texts.write_text("file_name,caption\na.jpg,one\n")
    import_folder(pictures, out, progress=False)
    remember(out, "folder", {"folder": str(pictures), "texts": [str(texts)], "split": "val"})
    Image.new("RGB", (8, 8), "red").save(pictures / "c.jpg")
    done = paragrain("update", out, "--json")
    assert (done.code, done.json["splits"]) == (0, {"val": 3})
    assert Collection.open(out).get(["a.jpg"])["a.jpg"].captions == ["one"]


def test_a_table_that_is_gone_is_named_and_an_import_forgets_it(
    pictures: Path, paragrain: Callable[..., Any]
) -> None:
    out, texts = pictures.parent / "out", pictures.parent / "t.csv"
    texts.write_text("file_name,caption\na.jpg,one\n")
    assert paragrain("import", "folder", pictures, out, "--texts", texts).code == 0
    texts.unlink()
    done = paragrain("update", out)
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert f"{texts}, which" in done.err
    assert "run the import again" in done.err
    assert paragrain("import", "folder", pictures, out).code == 0
    assert paragrain("update", out).code == 0
    assert Collection.open(out).get(["a.jpg"])["a.jpg"].captions == ["one"]


def test_what_was_dropped_does_not_return_with_an_update(
    pictures: Path, paragrain: Callable[..., Any]
) -> None:
    out, texts = pictures.parent / "out", pictures.parent / "t.csv"
    texts.write_text("file_name,caption,group\na.jpg,one,g\n")
    paragrain("import", "folder", pictures, out, "--texts", texts)
    assert paragrain("import", "folder", pictures, out, "--drop-texts").code == 0
    assert paragrain("update", out).code == 0
    record = Collection.open(out).get(["a.jpg"])["a.jpg"]
    assert (record.captions, record.group) == ([], "g")  # a group is no text


def test_a_collection_that_remembers_nothing_says_so(
    pictures: Path, paragrain: Callable[..., Any]
) -> None:
    out = pictures.parent / "out"
    import_folder(pictures, out, progress=False)
    file = out / "collection.json"
    info = json.loads(file.read_text())
    info.pop("import", None)
    file.write_text(json.dumps(info))
    with pytest.raises(UsageError, match="does not say what it was imported from"):
        update(out, progress=False)
    assert paragrain("update", pictures).code == 2
    remember(out, "museum", {})
    assert "imported by museum, which is not here" in paragrain("update", out).err


def test_a_split_that_nobody_chose(pictures: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from paragrain.sources import folder

    said: dict[str, bool] = {}
    monkeypatch.setattr(
        folder, "write_collection",
        lambda out, items, **_: said.update({item.id: item.says_split for item in items}),
    )  # fmt: skip
    import_folder(pictures, pictures.parent / "out", progress=False)
    assert said == {"a.jpg": False, "b.jpg": False}
    texts = pictures.parent / "t.csv"
    texts.write_text("file_name,split\na.jpg,test\n")
    import_folder(pictures, pictures.parent / "out", texts=texts, progress=False)
    assert said == {"a.jpg": True, "b.jpg": False}
    import_folder(pictures, pictures.parent / "out", split="train", progress=False)
    assert said == {"a.jpg": True, "b.jpg": True}


def test_a_later_table_counts_for_more(pictures: Path, paragrain: Callable[..., Any]) -> None:
    out, first, second = (pictures.parent / name for name in ("out", "1.csv", "2.csv"))
    first.write_text("file_name,caption,paragraph\na.jpg,one,p\nb.jpg,two,q\n")
    second.write_text("file_name,caption\na.jpg,three\na.jpg,four\n")
    texts = ["--texts", first, "--texts", second]
    assert paragrain("import", "folder", pictures, out, *texts).code == 0
    records = {record.id: record for record in Collection.open(out).records()}
    assert (records["a.jpg"].captions, records["a.jpg"].paragraph) == (["three", "four"], "p")
    assert (records["b.jpg"].captions, records["b.jpg"].paragraph) == (["two"], "q")


def test_options_that_are_none_are_refused(pictures: Path) -> None:
    with pytest.raises(UsageError, match="import_folder has no option 'stor'"):
        import_folder(pictures, pictures.parent / "out", stor="paths")  # type: ignore[call-arg]
    with pytest.raises(UsageError, match="a split needs a name"):
        import_folder(pictures, pictures.parent / "out", split=" ")


def test_the_command_of_another_package(
    pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, paragrain: Callable[..., Any]
) -> None:
    info = tmp_path / "site" / "herbarium-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: herbarium\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        f"[{registry.PLUGINS}]\nherbarium = herbarium:herbarium\nbroken = herbarium:nothing\n"
    )
    (tmp_path / "site" / "herbarium.py").write_text(PLUGIN)
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.delitem(IMPORTERS, "herbarium", raising=False)
    (pictures / "sheets.csv").write_text("number,file,label\n7,a.jpg,Poa annua\n")

    help = paragrain("import", "--help")
    assert (help.code, "Import a herbarium." in help.out) == (0, True)
    done = paragrain("import", "herbarium", pictures, tmp_path / "out", "--val", "0.1", "--json")
    assert (done.code, done.json["written"]) == (0, 1)
    broken = paragrain("import", "broken", "x", "--anything")
    assert broken.code == 1
    assert "the plugin broken" in broken.err

    monkeypatch.delitem(IMPORTERS, "herbarium")
    monkeypatch.delitem(__import__("sys").modules, "herbarium")
    remember(tmp_path / "out", "herbarium", {"folder": str(pictures)})
    (tmp_path / "site" / "herbarium-1.0.dist-info" / "entry_points.txt").write_text(
        f"[{registry.PLUGINS}]\nherbarium = herbarium:herbarium\n"
    )
    assert update(tmp_path / "out", progress=False).kept == 1
