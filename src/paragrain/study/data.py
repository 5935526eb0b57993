"""The collections of a study: drawn, joined from others, or there already."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from paragrain.collection import Collection, Item, Record, write_collection
from paragrain.errors import UsageError
from paragrain.files import read_json, write_json
from paragrain.sources import import_scenes
from paragrain.study.plan import Study
from paragrain.study.schema import Joined, Source


def collection_folder(study: Study, name: str, out: Path) -> Path:
    """Where a collection of the study lies, or will lie."""
    source = study.file.collections[name]
    return source.path if source.path is not None else out / "collections" / name


def open_collections(study: Study, out: Path) -> dict[str, Collection]:
    """Open the collections of a study that `prepare_collections` has seen to."""
    return {
        name: Collection.open(collection_folder(study, name, out))
        for name in study.file.collections
    }


def prepare_collections(study: Study, out: Path, *, progress: bool) -> dict[str, Collection]:
    """Open the collections of a study, in its order; make those that the study itself describes.

    Raises:
        UsageError: a folder that the study names is not there, or holds other data than when the
            study began.
    """
    opened: dict[str, Collection] = {}
    for name, source in study.file.collections.items():
        folder = collection_folder(study, name, out)
        if source.scenes is not None:
            import_scenes(
                folder, size=source.scenes.size, seed=source.scenes.seed, progress=progress
            )
        elif source.joined is not None:
            _join(opened[source.joined.collection], source.joined, folder, name, progress)
        elif not folder.is_dir():
            raise UsageError(f"the study needs the collection {folder}: {_how(source)}")
        opened[name] = Collection.open(folder)
        problem = absent_split(study, name, opened[name])
        if problem:
            raise UsageError(f"the study cannot use the collection {folder}: {problem}")
    _same_as_before(opened, out / "collections.json")
    return opened


def absent_split(study: Study, name: str, collection: Collection) -> str:
    """Which split a collection lacks that the study asks for, in words; "" if none."""
    wanted = {spec.place for spec in study.file.benchmarks.values() if spec.collection == name}
    wanted |= {
        cell.settings.split
        for cell in study.cells()
        if cell.settings is not None and cell.collection == name
    }
    for split in sorted(wanted - {"all", *collection.splits}):
        return f"it has no split {split!r}, only {', '.join(collection.splits)}"
    return ""


def _how(source: Source) -> str:
    return f"make it with `{source.make}`" if source.make else "import it first"


def _same_as_before(opened: dict[str, Collection], path: Path) -> None:
    """Refuse collections that changed under a study, whose results would not belong together."""
    before = read_json(path) if path.is_file() else {}
    now = {name: collection.fingerprint for name, collection in opened.items()}
    for name, fingerprint in now.items():
        if before.get(name, fingerprint) != fingerprint:
            raise UsageError(
                f"the collection {name} ({opened[name].folder}) is not what it was when the study "
                f"in {path.parent} began: run it into another folder with --out"
            )
    if before != before | now:
        write_json(path, before | now)


def _join(parent: Collection, joined: Joined, folder: Path, name: str, progress: bool) -> None:
    """Copy `parent`, with several texts of each record, one after another, as `description`."""

    def items() -> Iterator[Item]:
        stamp = f"{parent.fingerprint} {' '.join(joined.fields)}"
        for record in parent.records(images=True):
            yield Item(record.id, stamp, partial(_joined, record, joined.fields), trusted=True)

    write_collection(folder, items, name=name, source="study", progress=progress)


def _joined(record: Record, fields: tuple[str, ...]) -> Record:
    texts = [text for field in fields for text in record.texts(field) if text.strip()]
    record.description = " ".join(texts) or None
    return record
