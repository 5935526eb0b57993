"""The importers by kind, and how an import is repeated."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, get_args, get_origin

from paragrain.collection import ImportReport, WriteOptions
from paragrain.errors import ParagrainError, UsageError
from paragrain.files import read_json
from paragrain.plugins import registered

P = ParamSpec("P")

IMPORTERS: dict[str, Callable[..., ImportReport]] = {}
"""The importers by the kind of their source."""

PLUGINS = "paragrain.importers"
"""Entry points of this group are the commands of other packages' importers."""

PASSING = ("out", "progress", "verify", "drop_texts", "remember")
"""What concerns one run alone, and is not repeated."""


def importer(kind: str) -> Callable[[Callable[P, ImportReport]], Callable[P, ImportReport]]:
    """Make a function the importer of a kind of source.

    Its parameters come first, the most telling ahead; then `out`, then what has a default, then
    `**options: Unpack[WriteOptions]`, which it hands on to `write_collection`. Paths may be given
    as strings, and one path where several can be. The collection remembers the arguments that
    are not the defaults, so that `update` can repeat the import.
    """

    def register(function: Callable[P, ImportReport]) -> Callable[P, ImportReport]:
        signature = inspect.signature(function)

        @wraps(function)
        def run(*args: P.args, **kwargs: P.kwargs) -> ImportReport:
            bound = signature.bind(*args, **kwargs)
            for name, value in bound.arguments.items():
                bound.arguments[name] = _as_paths(value, signature.parameters[name].annotation)
            options = bound.arguments.setdefault("options", {})
            _check(function.__name__, bound.arguments.get("split"), options)
            options["remember"] = {"kind": kind, "arguments": _arguments(signature, bound)}
            return function(*bound.args, **bound.kwargs)

        IMPORTERS[kind] = run
        return run

    return register


def update(
    folder: Path, *, verify: bool = False, drop_texts: bool = False, progress: bool = True
) -> ImportReport:
    """Import again what a collection was made of, with the arguments that it remembers.

    Args:
        folder: of the collection.
        verify: see `WriteOptions`.
        drop_texts: see `WriteOptions`.
        progress: whether to show a progress bar.

    Raises:
        UsageError: the collection does not know what it was made of.
        ParagrainError: as the importer says.
    """
    folder = Path(folder)
    kind, arguments = _remembered(folder)
    gone = [path for path in arguments.get("texts") or [] if not Path(path).exists()]
    if gone:
        raise UsageError(
            f"the texts in {gone[0]}, which {folder} was imported with, are not there any more: "
            "put the file back, or run the import again, which forgets it and keeps its texts"
        )
    run: WriteOptions = {"verify": verify, "drop_texts": drop_texts, "progress": progress}
    return _importer(kind, folder)(out=folder, **arguments, **run)


def _remembered(folder: Path) -> tuple[str, dict[str, Any]]:
    try:
        info = read_json(folder / "collection.json")
    except (OSError, ValueError) as error:
        raise UsageError(
            f"there is no collection in {folder} that could be updated: check the path"
        ) from error
    known = info.get("import") if isinstance(info, dict) else None
    kind, arguments = (known.get("kind"), known.get("arguments")) if known else (None, None)
    if not isinstance(kind, str) or not isinstance(arguments, dict):
        raise UsageError(
            f"{folder} does not say what it was imported from: run its import once more"
        )
    return kind, arguments


def _importer(kind: str, folder: Path) -> Callable[..., ImportReport]:
    if kind not in IMPORTERS:
        for plugin in registered(PLUGINS).values():
            plugin.load()  # which decorates its importer
    if kind not in IMPORTERS:
        raise ParagrainError(
            f"{folder} was imported by {kind}, which is not here: install what provides it"
        )
    return IMPORTERS[kind]


# --- Arguments --------------------------------------------------------------------------------


def _check(name: str, split: str | None, options: Mapping[str, Any]) -> None:
    if split is not None and not split.strip():
        raise UsageError("a split needs a name, such as train: leave it out for that one")
    if unknown := [key for key in options if key not in WriteOptions.__annotations__]:
        raise UsageError(f"{name} has no option {unknown[0]!r}: see its documentation")


def _as_paths(value: Any, annotation: Any) -> Any:
    """Strings as paths where the annotation speaks of paths; one path as several."""
    if Path not in _parts(annotation):
        return value
    many = any(get_origin(part) is Sequence for part in _parts(annotation))
    if isinstance(value, str | Path):
        return (Path(value),) if many else Path(value)
    return value if value is None else tuple(map(Path, value))


def _parts(annotation: Any) -> list[Any]:
    """The annotation with all that stands in it."""
    return [annotation, *(part for inner in get_args(annotation) for part in _parts(inner))]


def _arguments(signature: inspect.Signature, bound: inspect.BoundArguments) -> dict[str, Any]:
    """What was asked for, as JSON can hold it: relative paths would mean another place later."""
    given = {
        name: value
        for name, value in bound.arguments.items()
        if name != "options" and value != signature.parameters[name].default
    }
    given |= bound.arguments["options"]
    return {
        name: _plain(value)
        for name, value in given.items()
        if name not in PASSING and value is not None
    }


def _plain(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value.absolute())
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return dict(value) if isinstance(value, Mapping) else value
