"""`paragrain import NAME` of other packages: loaded when asked for, or for the list of commands."""

from typing import Any

import typer
from typer.core import TyperGroup

from paragrain.errors import ParagrainError
from paragrain.plugins import Plugin, registered

PLUGINS = "paragrain.importers"
"""Entry points of this group are functions as `import_command` makes; `sources.update`, which would
be slow to load for its name alone, knows it too."""


class Kinds(TyperGroup):
    """The commands of this package, then those of others."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Their names."""
        own = super().list_commands(ctx)
        return own + sorted(set(registered(PLUGINS)) - set(own))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of a name; one of a broken package says so when it is called."""
        own = super().get_command(ctx, cmd_name)
        plugin = None if own else registered(PLUGINS).get(cmd_name)
        return own if plugin is None else _command(plugin)


def _command(plugin: Plugin) -> Any:
    app = typer.Typer(pretty_exceptions_enable=False, add_completion=False)
    try:
        app.command(plugin.name)(plugin.load())
    except ParagrainError as error:
        reason = error

        def broken() -> None:
            raise reason

        anything = {"allow_extra_args": True, "ignore_unknown_options": True}
        app.command(plugin.name, help=str(reason), context_settings=anything)(broken)
    return typer.main.get_command(app)
