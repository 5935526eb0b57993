"""The members of tars, where they lie: found by their headers alone, links among them resolved."""

import posixpath
import re
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from paragrain.collection import BadRecord, Skipped
from paragrain.images import IMAGE_SUFFIXES
from paragrain.sources.names import shown
from paragrain.sources.packed import BROKEN, Packed, compression

TAR = re.compile(r"\.(tar(\.\w+)?|tgz|tbz2?|txz|tzst)$")
"""The end of a tar's name; what it is compressed with its first bytes say."""

TEXT_SUFFIXES = (".txt", ".text", ".caption")
"""Members with these extensions hold captions, one a line."""


@dataclass(frozen=True)
class Part:
    """Where one member of a sample lies: in a tar, a Parquet file, or as a file of its own.

    Attributes:
        file: the one that holds it.
        start: its first byte in the file, or in what a compressed tar holds; in Parquet its row.
        size: its bytes; of no meaning in Parquet.
        suffix: its extension, and ".jpg" for the column "jpg".
        packed: what reads it out of a compressed tar or a Parquet file.
    """

    file: Path
    start: int
    size: int
    suffix: str
    packed: Packed | None = None

    def read(self) -> bytes:
        """The bytes.

        Raises:
            BadRecord: the file ends or is damaged before their end.
            OSError: it cannot be read.
        """
        if self.packed and self.file.suffix == ".parquet":
            return self.packed.cell(self.file, self.suffix[1:], self.start)
        if self.packed:
            return self._whole(self.packed.piece(self.file, self.start, self.size))
        with self.file.open("rb", buffering=0) as file:
            file.seek(self.start)
            return self._whole(file.read(self.size))

    def _whole(self, data: bytes) -> bytes:
        if len(data) != self.size:
            raise BadRecord(f"its {self.suffix} is cut off, where {self.file.name} ends")
        return data


def members_of(
    tar: Path, prefix: str, packed: Packed, problems: Skipped
) -> Iterator[tuple[str, Part]]:
    """Name and place of every file in a tar, links to its files included.

    Where it is damaged, that is named and the members end.
    """
    reason, named = "", shown(prefix + tar.name[len(TAR.sub("", tar.name)) :])
    places: dict[str, Part] = {}
    links: list[tuple[str, str]] = []
    try:
        kind = compression(tar)
        if kind == "zst":
            problems.append((named, "compressed by zstd: unpack it to .tar first"))
            return
        reader = packed if kind else None
        with tarfile.open(tar, f"r:{kind}") as archive:  # type: ignore[call-overload]
            while (member := archive.next()) is not None:
                archive.members = []  # or it keeps them all
                if member.islnk() or member.issym():
                    links.append((member.name, _target(member)))
                elif problem := _problem(member):
                    problems.append((shown(f"{prefix}/{member.name}"), problem))
                elif member.isreg():
                    suffix = PurePosixPath(member.name).suffix.lower()
                    part = Part(tar, member.offset_data, member.size, suffix, reader)
                    places[posixpath.normpath(member.name)] = part
                    yield member.name, part
            end = archive.offset
            archive.fileobj.seek(end)
            block = archive.fileobj.read(tarfile.BLOCKSIZE)
            after = iter(lambda: archive.fileobj.read(2**16), b"")
            if block != b"\0" * tarfile.BLOCKSIZE:  # the end mark; `tarfile` stops at anything odd
                reason = f"damaged or cut off after {end:,} bytes"
            elif any(part.strip(b"\0") for part in after):
                reason = f"goes on after its end mark at {end:,} bytes, as tars joined by cat do"
    except (tarfile.TarError, *BROKEN) as error:
        reason = f"cannot be read to its end ({error})"
    yield from _linked(links, places, prefix, problems)
    if reason:
        problems.append((named, f"{reason}: the samples before that come in"))


def _target(member: tarfile.TarInfo) -> str:
    """What a link leads to: a hard one by the name of a member, a symbolic one from its place."""
    if member.issym() and not member.linkname.startswith("/"):
        return posixpath.normpath(posixpath.join(posixpath.dirname(member.name), member.linkname))
    return posixpath.normpath(member.linkname)


def _problem(member: tarfile.TarInfo) -> str | None:
    if member.sparse is not None:
        return "a sparse file, which cannot be read where it lies: unpack the tar first"
    if member.isdev() and _is_of_use(member.name):
        return "not a file that can be read"
    return None


def _is_of_use(name: str) -> bool:
    suffix = PurePosixPath(name).suffix.lower()
    return suffix in IMAGE_SUFFIXES or suffix in (*TEXT_SUFFIXES, ".json")


def _linked(
    links: list[tuple[str, str]], places: dict[str, Part], prefix: str, problems: Skipped
) -> Iterator[tuple[str, Part]]:
    """Links by the places of what they lead to, other links in between; the rest is named."""
    targets = {posixpath.normpath(name): target for name, target in links}
    for name, target in links:
        for _ in range(len(targets)):  # a circle ends here
            if target in places or target not in targets:
                break
            target = targets[target]
        if target in places:
            suffix = PurePosixPath(name).suffix.lower()
            yield name, replace(places[target], suffix=suffix)
        elif _is_of_use(name):
            reason = f"a link to {shown(target)}, which is no file of the tar"
            problems.append((shown(f"{prefix}/{name}"), reason))
