"""What other packages add without a change here: encoders, importers, protocols, analyses.

A package names what it adds in its own metadata, as an entry point of a group such as
`paragrain.encoders`; a program registers it by hand. Nothing is imported before it is used, so a
plugin that is broken stops nobody but who asks for it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from typing import Any

from paragrain.errors import ParagrainError, UsageError

_BY_HAND: dict[str, dict[str, Any]] = {}
"""What this process registered: group, name, object."""


@dataclass(frozen=True)
class Plugin:
    """Something that is registered under a name.

    Attributes:
        name: by which it is asked for.
        place: its module and name in it, as `herbarium.models:MeanBlip`.
        package: name and version of the package that brings it; "" where a program registered it.
    """

    name: str
    place: str
    package: str
    _load: Callable[[], Any]

    @property
    def origin(self) -> str:
        """Where it comes from, in words."""
        return f"{self.place} of {self.package}" if self.package else self.place

    def load(self) -> Any:
        """The thing itself.

        Raises:
            ParagrainError: importing it fails.
        """
        try:
            return self._load()
        except ParagrainError:
            raise
        except (Exception, SystemExit) as error:
            reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
            raise ParagrainError(
                f"the plugin {self.name} ({self.origin}) cannot be loaded ({reason}): "
                "mend or uninstall it"
            ) from error


def register(group: str, name: str, thing: Any) -> None:
    """Register something in this process; again the same, or its newer definition, is welcome.

    Raises:
        UsageError: the name is no plain name, or another thing has it.

    >>> register("paragrain.examples", "two", 2)
    >>> registered("paragrain.examples")["two"].load()
    2
    >>> register("paragrain.examples", "two", 3)
    Traceback (most recent call last):
    paragrain.errors.UsageError: two is int already: register int under another name
    """
    if not isinstance(name, str) or not name or not all(c.isalnum() or c in "._-" for c in name):
        raise UsageError(
            f"{name!r} cannot be the name of a plugin: use letters, digits, dots, dashes and "
            "underscores"
        )
    known = _BY_HAND.setdefault(group, {})
    if name in known and not _is_same(known[name], thing):
        raise UsageError(
            f"{name} is {_place(known[name])} already: register {_place(thing)} under another name"
        )
    known[name] = thing


def registered(group: str) -> dict[str, Plugin]:
    """The plugins of a group by name: of this process, and of the packages that are installed.

    Names alone are read; `Plugin.load` imports. A name that two packages give to different things
    is kept, and says so when it is loaded.
    """
    found: dict[str, Plugin] = {}
    for package, point in _entry_points(group):
        plugin = Plugin(point.name, point.value, package, point.load)
        first = found.setdefault(point.name, plugin)
        if first.place != plugin.place:
            packages = f"{first.package} and {package}"
            found[point.name] = Plugin(
                point.name, first.place, packages, partial(_refuse, first, plugin)
            )
    for name, thing in _BY_HAND.get(group, {}).items():
        # The class that a program holds in its hands, also where an entry point names it too.
        found[name] = Plugin(name, _place(thing), "", partial(_BY_HAND[group].get, name))
    return found


def plugin_of(group: str, thing: type) -> Plugin | None:
    """The plugin of a group that is this class; imports nothing."""
    own = _place(thing)
    return next((plugin for plugin in registered(group).values() if plugin.place == own), None)


def _entry_points(group: str) -> Iterator[tuple[str, metadata.EntryPoint]]:
    """Package and entry point; metadata that cannot be read is passed over."""
    seen = set()
    for package in metadata.distributions():
        try:
            if group not in (package.read_text("entry_points.txt") or ""):
                continue
            points = [point for point in package.entry_points if point.group == group]
            name, title = package.name, f"{package.name} {package.version}"
        except Exception:
            continue
        if name not in seen:  # a second one is hidden by the first, as its modules are
            seen.add(name)
            yield from ((title, point) for point in points)


def _refuse(first: Plugin, second: Plugin) -> Any:
    raise ParagrainError(
        f"two packages name a plugin {first.name} ({first.origin} and {second.origin}): "
        "uninstall one"
    )


def _is_same(known: Any, thing: Any) -> bool:
    """Whether it is the same thing, or that one defined anew, as in a notebook."""
    return known is thing or (isinstance(thing, type) and _place(known) == _place(thing))


def _place(thing: Any) -> str:
    """Module and name of a class or function; of anything else its type."""
    name = getattr(thing, "__qualname__", None)
    return f"{thing.__module__}:{name}" if name else type(thing).__name__
