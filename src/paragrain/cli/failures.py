"""Whatever ends a command, in one sentence: what is wrong, where, and what to do."""

import os
import re
import traceback

from paragrain.errors import EXIT_FAILED, EXIT_USAGE, ParagrainError
from paragrain.files import NO_ROOM

INTERRUPTED = 130
STOPPED = "stopped; run the same command again to go on"
DEBUG = "PARAGRAIN_DEBUG"

_NO_ROOM_TEXT = re.compile(r"os error (28|27|122)\b|No space left|File too large|quota exceeded")
_NO_MEMORY = re.compile(r"out of memory|can't allocate memory|unable to allocate|bad_alloc", re.I)

_KINDS = {
    "safetensors": "a file of weights cannot be read or written",
    "safetensors_rust": "a file of weights cannot be read or written",
    "huggingface_hub": "the Hugging Face Hub does not give a file",
    "tokenizers": "a tokenizer cannot be read or used",
    "transformers": "a model cannot be opened or run",
    "torch": "a computation failed",
    "pyarrow": "a Parquet file cannot be read or written",
    "PIL": "an image cannot be read",
    "yaml": "a YAML file cannot be read",
    "json": "a JSON file cannot be read",
    "tomllib": "a TOML file cannot be read",
    "csv": "a table cannot be read",
    "_csv": "a table cannot be read",
    "pydantic_core": "a setting or a file holds a wrong value",
    "sqlite3": "a database cannot be read or written",
    "openai": "the server cannot be used",
    "httpx": "the server cannot be used",
    "aiohttp": "the server cannot be used",
    "matplotlib": "a plot cannot be drawn",
    **dict.fromkeys(("zlib", "gzip", "bz2", "_lzma", "lzma", "zipfile", "tarfile"),
                    "a compressed file is damaged"),
}  # fmt: skip
"""What the exceptions of a library are about, by its name."""


def explained(error: BaseException) -> tuple[int, str]:
    """Exit code and sentence of what ended a command; the traceback too, if it was asked for.

    >>> explained(ParagrainError("the disk is on fire"))
    (1, 'the disk is on fire')
    >>> explained(ZeroDivisionError("division by zero"))[1]
    'something failed that nobody foresaw (ZeroDivisionError: division by zero): ...'
    """
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED, STOPPED
    if os.environ.get(DEBUG, "") not in ("", "0"):
        traceback.print_exception(error)
    if isinstance(error, ParagrainError):
        return error.exit_code, str(error)
    if hasattr(error, "format_message"):  # of the library that reads the command line
        return EXIT_USAGE, _wrong_usage(error)
    return EXIT_FAILED, _sentence(error)


def _wrong_usage(error: BaseException) -> str:
    """What was typed wrongly; "" where the help has been shown instead."""
    message = " ".join(error.format_message().split()).rstrip(".")  # type: ignore[attr-defined]
    command = getattr(getattr(error, "ctx", None), "command_path", "paragrain")
    return message and f"{message}: see `{command} --help`"


def _sentence(error: BaseException) -> str:
    text = str(error)
    if isinstance(error, BrokenPipeError):
        return ""
    if getattr(error, "errno", None) in NO_ROOM or _NO_ROOM_TEXT.search(text):
        place = getattr(error, "filename", None)
        where = f" at {place}" if place else ""
        return (
            f"there is no room to write{where} ({_first_line(error)}): make room, then run the "
            "same command again"
        )
    if isinstance(error, MemoryError) or _NO_MEMORY.search(text):
        return f"memory ran out ({_first_line(error)}): use smaller batches, or a smaller model"
    if isinstance(error, RecursionError):
        return "a file or a text is nested too deeply to be read: look for brackets without end"
    if isinstance(error, UnicodeError):
        return f"a file or a name is not valid UTF-8 ({_first_line(error)}): save it as UTF-8"
    kind = _KINDS.get(type(error).__module__.partition(".")[0])
    if kind is not None:
        return f"{kind} ({_named(error)}): check it; {DEBUG}=1 shows where it is used"
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{_first_line(error)}; choose a place that can be used"
    return f"something failed that nobody foresaw ({_named(error)}): {DEBUG}=1 shows where"


def _named(error: BaseException) -> str:
    return f"{type(error).__name__}: {_first_line(error)}"


def _first_line(error: BaseException) -> str:
    said = getattr(error, "strerror", None) or str(error)
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return lines[0].rstrip(".:")[:300] if lines else type(error).__name__
