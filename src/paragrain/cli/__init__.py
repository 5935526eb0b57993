"""The command line: one thin file for each verb, no logic."""

import json
import os
import sys
from contextlib import suppress
from typing import TextIO

from paragrain.errors import EXIT_FAILED
from paragrain.runtime import settle, tune


def main() -> None:
    """Run the command line; what fails is one sentence on standard error, no traceback.

    With `--json` it is an object on standard output too: `{"error": ..., "exit_code": ...}`.

    Exit codes: 0 all done, 1 failed, 2 wrong usage, 3 done with some items failed, 130 stopped by
    Ctrl-C.
    """
    settle()
    tune()
    code, error = _run()
    if error:
        _write(sys.stderr, _line(error))
    unwritten = _write(sys.stdout, _as_json(error, code) if error and _wants_json() else "")
    if unwritten:
        code = code or EXIT_FAILED
        if unwritten != _NOBODY_READS and not error:
            place = f"the output cannot be written ({unwritten}): send it to another place"
            _write(sys.stderr, _line(place))
    _write(sys.stderr)
    sys.exit(code)


_NOBODY_READS = "nobody reads it"


def _run() -> tuple[int, str]:
    """Exit code, and what went wrong in one sentence, or ""."""
    try:
        from paragrain.cli.app import app

        ended = app(standalone_mode=False)
    except SystemExit as error:
        ended = error.code if isinstance(error.code, int) else EXIT_FAILED
    except (Exception, KeyboardInterrupt) as error:
        from paragrain.cli.failures import explained

        return explained(error)
    from paragrain.cli.failures import INTERRUPTED, STOPPED

    code = ended if isinstance(ended, int) else 0
    return code, STOPPED if code == INTERRUPTED else ""


def _line(error: str) -> str:
    from paragrain.words import printable

    return f"paragrain: {printable(error)}"


def _as_json(error: str, code: int) -> str:
    return json.dumps({"error": error, "exit_code": code})


def _wants_json() -> bool:
    options = sys.argv[1:]
    return "--json" in options[: options.index("--") if "--" in options else None]


def _write(stream: TextIO, line: str = "") -> str:
    """Write a line and all that is held back; why that cannot be, or "".

    What cannot be written is given up: else Python would try again when it ends, and say so in
    words of its own.
    """
    try:
        if line:
            print(line, file=stream)
        stream.flush()
    except (OSError, ValueError) as error:
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        if isinstance(error, BrokenPipeError):
            return _NOBODY_READS
        return getattr(error, "strerror", None) or str(error)
    return ""
