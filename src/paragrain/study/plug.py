"""Analyses that other packages add to the report of a study, by the names of their entry points."""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from paragrain.errors import UsageError
from paragrain.plugins import registered

if TYPE_CHECKING:
    from paragrain.study.report.blocks import Block
    from paragrain.study.report.looking import Looker

GROUP = "paragrain.analyses"

Analysis = Callable[["Looker"], Iterable["Block"]]
"""Takes what the analyses of a study share; gives the blocks of its own part of the report."""


def check_analyses(names: Sequence[str], where: str) -> None:
    """Refuse names that no installed package registers.

    Raises:
        UsageError: there is no such analysis.
    """
    known = registered(GROUP) if names else {}
    for name in names:
        if name not in known:
            there = f"use one of {', '.join(sorted(known))}" if known else "none is installed"
            raise UsageError(f"{where} adds an analysis {name!r} that nothing registers: {there}")


def load_analyses(names: Sequence[str]) -> dict[str, Analysis]:
    """The analyses of these names, imported.

    Raises:
        ParagrainError: one of them cannot be imported.
    """
    known = registered(GROUP) if names else {}
    return {name: known[name].load() for name in names}
