"""Which analyses there are: those of this folder, and those that other packages register."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from paragrain.collection import Collection
from paragrain.pages import Block, Heading, Text
from paragrain.plugins import registered
from paragrain.progress import progress_bar
from paragrain.study.analyses import cross_set, examples, geometry, positions, saliency
from paragrain.study.analyses.context import Analysis, AnalysisContext
from paragrain.study.plan import ANALYSIS_PLUGINS, Study
from paragrain.study.serialization import from_plain

ANALYSES: dict[str, Analysis] = {
    "geometry": geometry.ANALYSIS,
    "cross_set": cross_set.ANALYSIS,
    "positions": positions.ANALYSIS,
    "saliency": saliency.ANALYSIS,
    "examples": examples.ANALYSIS,
}
"""In the order of the report."""

Found = dict[str, dict[str, Any]]
"""What each analysis found, by model or direction."""


def load_plugins(names: Sequence[str]) -> dict[str, Callable[[AnalysisContext], Iterable[Block]]]:
    """The analyses of these names, imported.

    Raises:
        ParagrainError: one of them cannot be imported.
    """
    known = registered(ANALYSIS_PLUGINS) if names else {}
    return {name: known[name].load() for name in names}


def analyse(context: AnalysisContext, *, progress: bool) -> tuple[Found, list[Block]]:
    """All analyses of the study, of the models that are done, and the blocks of the added ones."""
    found: Found = {}
    blocks: list[Block] = []
    if not context.models():
        return found, blocks
    names: tuple[str, ...] = context.spec.only or tuple(ANALYSES)
    added = load_plugins(context.spec.added)
    total = len(names) + len(added)
    with progress_bar("analysing models", total, unit="analyses", show=progress) as advance:
        for name in names:
            found[name] = ANALYSES[name].compute(context)
            advance()
        for name, plugin in added.items():
            blocks += [Heading(name, 3), *plugin(context)]
            advance()
    return found, blocks


def found_from_plain(plain: Mapping[str, Mapping[str, Any]]) -> Found:
    """What the analyses found, from stored numbers."""
    return {
        name: {key: from_plain(ANALYSES[name].kind, own) for key, own in of_models.items()}
        for name, of_models in plain.items()
    }


def analyses_section(
    study: Study, found: Found, added: Sequence[Block], collection: Collection | None
) -> Iterator[Block]:
    """What the analyses found; `collection` is that of the pictures, if it is at hand."""
    if not any(found.values()):
        return
    yield Heading("Inside the models")
    titles = [
        study.title(name) for name in {**found.get("geometry", {}), **found.get("saliency", {})}
    ]
    if titles:
        seed = study.file.seeds[0]
        yield Text(f"Of each model the one of the first seed (seed {seed}): {', '.join(titles)}.")
    for name, analysis in ANALYSES.items():
        if found.get(name):
            yield from analysis.blocks(study, found[name], collection)
    yield from added
