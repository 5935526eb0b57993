"""All verbs under one command."""

import typer

from paragrain.cli import (
    annotate,
    audit,
    compare,
    demo,
    embed,
    evaluate,
    import_,
    pretrain,
    search,
    study,
    train,
    update,
    use,
)

EXIT_CODES = (
    "Exit codes: 0 all done, 1 failed, 2 wrong usage, 3 done with some items failed, "
    "130 stopped by Ctrl-C."
)

app = typer.Typer(
    name="paragrain",
    help="Image search that understands paragraphs.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


def _version(asked: bool) -> None:
    if asked:
        from paragrain import __version__

        typer.echo(f"paragrain {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version and exit."
    ),
) -> None:
    pass


app.add_typer(import_.app, name="import")
app.add_typer(annotate.app, name="annotate")
app.command("update")(update.update)
app.command("use")(use.use)
app.command("embed")(embed.embed)
app.command("train")(train.train)
app.command("evaluate")(evaluate.evaluate)
app.command("compare")(compare.compare)
app.command("audit")(audit.audit)
app.command("search")(search.search)
app.command("pretrain")(pretrain.pretrain)
app.add_typer(study.app, name="study")
app.command("demo")(demo.demo)


def _tell_exit_codes(group: typer.Typer) -> None:
    """Have the help of a group and of each of its commands end with the exit codes."""
    group.info.epilog = EXIT_CODES
    for command in group.registered_commands:
        command.epilog = EXIT_CODES
    for inner in group.registered_groups:
        inner.epilog = EXIT_CODES
        if inner.typer_instance is not None:
            _tell_exit_codes(inner.typer_instance)


_tell_exit_codes(app)
