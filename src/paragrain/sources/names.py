"""Names and ids as lists write them: what is the same name, and what is the same number."""

import os
import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from urllib.parse import unquote

from paragrain.images import IMAGE_SUFFIXES

_NUMBER = re.compile(r"0*(\d{1,40})(?:\.0+)?")
_COCO = re.compile(r"coco_(?:train|val|test)20\d\d_(?=\d{12}$)")
_DRIVE = re.compile(r"[A-Za-z]:(?=[/\\])")


def number(name: str) -> str | None:
    """The number that a name is, however it is written; `None` if it is none.

    >>> number("000000000003"), number("3.0"), number(" 3 "), number("3a"), number("-3")
    ('3', '3', '3', None, None)
    """
    found = _NUMBER.fullmatch(name.strip()) if name.isascii() else None
    return str(int(found[1])) if found else None


def shown(name: str) -> str:
    r"""A name fit to be printed and stored: bytes that are no UTF-8 become \xNN or \uNNNN."""
    return name if is_valid(name) else name.encode("utf-8", "backslashreplace").decode()


def is_valid(text: str) -> bool:
    """Whether it is valid Unicode, and not bytes that could not be read."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def suffix(path: str) -> str:
    """The last extension, as `PurePosixPath` has it, but several times as quick.

    >>> suffix("a.b/22.05.png"), suffix("a/.hidden"), suffix("a.")
    ('.png', '', '')
    """
    name = path[path.rfind("/") + 1 :]
    dot = name.rfind(".")
    return name[dot:] if 0 < dot < len(name) - 1 else ""


def stem(path: str) -> str:
    """The path without the last extension: `22.05` of `22.05.png`."""
    return path.removesuffix(suffix(path))


def base(path: str) -> str:
    """What is behind the last "/" or backslash.

    >>> base("a/b.jpg"), base("C:\\\\a\\\\b.jpg")
    ('b.jpg', 'b.jpg')
    """
    return re.split(r"[/\\]", path)[-1]


def normal(name: str) -> str:
    """In Unicode's normal form C."""
    return unicodedata.normalize("NFC", name)


def normal_end(name: str) -> str:
    """The same, with the extension in lower case."""
    name = normal(name)
    return stem(name) + suffix(name).lower()


def folded(name: str) -> str:
    """The same in any case."""
    return normal(normal(name).casefold())


def loosest(name: str) -> str:
    """What is equal in all spellings of a file's name or of an id: no extension, no zeros.

    >>> loosest("IMG_1.JPG"), loosest("000000000009.jpg"), loosest("COCO_val2014_000000000009.jpg")
    ('img_1', '9', '9')
    """
    name = folded(name.strip())
    while suffix(name) in IMAGE_SUFFIXES:
        name = stem(name)
    name = _COCO.sub("", name)
    return number(name) or name


def is_elsewhere(name: str) -> bool:
    """Whether it is an absolute path, of whatever machine.

    >>> [is_elsewhere(name) for name in ("/a/b.jpg", "C:\\\\a.jpg", "~/b.jpg", "a/b.jpg")]
    [True, True, True, False]
    """
    return name.startswith(("/", "~", "\\", "file:")) or _DRIVE.match(name) is not None


def leaves(name: str) -> bool:
    """Whether a path leads out of where it begins.

    >>> leaves("../a.jpg"), leaves("a\\\\..\\\\b.jpg"), leaves("a..b.jpg")
    (True, True, False)
    """
    return ".." in re.split(r"[/\\]", name)


def is_end(name: str, path: str) -> bool:
    """Whether a path is a file's own or the end of it, in any spelling.

    >>> is_end("b/X", "a/b/x.jpg"), is_end("c/x.jpg", "a/b/x.jpg")
    (True, False)
    """
    parts = [part for part in re.split(r"[/\\]+", unquote(name)) if part != "."]
    ends = path.split("/")[-len(parts) :]
    return [*map(loosest, parts)] == [*map(loosest, ends)]


def spellings(name: str) -> Iterator[str]:
    """A path as it stands, then with "/" between its parts, then with its escapes undone.

    >>> list(spellings("file:///a%20b\\\\c.jpg"))
    ['file:///a%20b\\\\c.jpg', 'file:/a%20b/c.jpg', '/a b/c.jpg']
    """
    seen = {name}
    yield name
    plain = name.removeprefix("file://localhost").removeprefix("file://")
    for spelled in (
        _slashes(name),
        _slashes(name.strip()),
        *(_slashes(unquote(part)) for part in (plain,) if "%" in name or plain != name),
    ):
        if spelled and spelled not in seen and not leaves(spelled):
            seen.add(spelled)
            yield spelled


def _slashes(name: str) -> str:
    """`a/b.jpg` of `.\\a\\\\b.jpg`."""
    path = re.sub(r"/+", "/", name.replace("\\", "/"))
    while path.startswith("./"):
        path = path[2:]
    return path.replace("/./", "/")


def below(name: str, root: Path) -> Iterator[str]:
    """Where an absolute path of this machine lies below a folder, by links or without.

    Nothing if it does not lie there.
    """
    path = Path(os.path.expanduser(name))  # noqa: PTH111  (`Path.expanduser` may raise)
    if not path.is_absolute() or "\0" in name:
        return
    real = Path(_real(str(path.parent))) / path.name
    for place, base in ((path, root.absolute()), (real, Path(_real(str(root))))):
        if place.is_relative_to(base):
            yield place.relative_to(base).as_posix()


@lru_cache(256)
def _real(folder: str) -> str:
    return os.path.realpath(folder)
