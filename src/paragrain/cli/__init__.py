"""The command line: one thin file for each verb, no logic."""

import sys

from paragrain.cli.app import app
from paragrain.errors import EXIT_FAILED, ParagrainError
from paragrain.runtime import tune

_INTERRUPTED = 130  # how typer ends after Ctrl-C, without a word


def main() -> None:
    """Run the command line; a user's mistake is one sentence on standard error, no traceback.

    Exit codes: 0 all done, 1 failed, 2 wrong usage, 3 done with some items failed.
    """
    tune()
    try:
        app()
    except SystemExit as ended:
        if ended.code == _INTERRUPTED:
            print("paragrain: stopped; run the same command again to go on", file=sys.stderr)
        raise
    except ParagrainError as error:
        print(f"paragrain: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        sys.exit(EXIT_FAILED)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        reason = error.strerror or error
        print(f"paragrain: {where}{reason}; choose a place that can be used", file=sys.stderr)
        sys.exit(EXIT_FAILED)
