"""One progress bar for all long work: rate and time left, on standard error, silent in pipes."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text


class _Rate(ProgressColumn):
    """Finished units a second."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        unit = task.fields.get("unit", "items")
        return Text("" if speed is None else f"{speed:,.1f} {unit}/s")


@contextmanager
def progress_bar(
    title: str, total: int | None, *, unit: str = "items", show: bool = True
) -> Iterator[Callable[..., None]]:
    """Show a bar while the block runs; yields `advance(n=1, note="")`.

    Args:
        title: what is being done, such as `"embedding"`.
        total: number of units, or `None` if it is not known.
        unit: name of what is counted, for the rate.
        show: False to stay silent. It is silent anyway where standard error is not a terminal.
    """
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        _Rate(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=console, disable=not (show and console.is_terminal)) as bar:
        task = bar.add_task(title, total=total, unit=unit, note="")

        def advance(n: int = 1, note: str | None = None) -> None:
            if note is None:
                bar.update(task, advance=n)
            else:
                bar.update(task, advance=n, note=note)

        yield advance
