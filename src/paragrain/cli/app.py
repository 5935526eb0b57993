"""All verbs under one command."""

import typer

from paragrain.cli import (
    annotation,
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
)

app = typer.Typer(
    name="paragrain",
    help="Image search that understands paragraphs.",
    epilog="Exit codes: 0 all done, 1 failed, 2 wrong usage, 3 done with some items failed.",
    no_args_is_help=True,
    add_completion=False,
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
app.add_typer(annotation.app, name="annotate")
app.command("update")(update.update)
app.command("embed")(embed.embed)
app.command("train")(train.train)
app.command("evaluate")(evaluate.evaluate)
app.command("compare")(compare.compare)
app.command("audit")(audit.audit)
app.command("search")(search.search)
app.command("pretrain")(pretrain.pretrain)
app.add_typer(study.app, name="study")
app.command("demo")(demo.demo)
