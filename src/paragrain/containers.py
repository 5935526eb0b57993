"""Image files as containers: which of their parts make the picture, and which only speak of it.

`images` reads a file as it is; what it then cannot read is tried once more without its metadata. So
a broken profile, a comment of gigabytes or a senseless tag never costs a sound picture, and what is
wrong with the picture itself is still found.
"""

import struct
import zlib
from collections.abc import Iterator

PNG = b"\x89PNG\r\n\x1a\n"
TIFF = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
"""How files begin; of TIFF either order of bytes, and with offsets of 32 or 64 bits."""

_TEXT_LIMIT = 1 << 20  # more than any text that tells how a picture is turned

_JPEG_ALONE = {0x01, *range(0xD0, 0xD9)}  # markers without a length
_JPEG_SPEAKS = {*range(0xE0, 0xF0), 0xFE}  # APPn and comments

_TIFF_PIXELS = set(range(512, 522)).union(
    (256, 257, 258, 259, 262, 266, 273, 274, 277, 278, 279, 284, 292, 293, 317, 320),
    (322, 323, 324, 325, 332, 338, 339, 347, 529, 530, 531, 532),
)
_TIFF_SIZES = (0, 1, 1, 2, 4, 8, 1, 1, 2, 4, 8, 4, 8, 4, 0, 0, 8, 8, 8)
_TIFF_ORIENTATION = 274


def without_metadata(data: bytes) -> bytes | None:
    """The same picture with nothing but its pixels and how it is turned; None if not understood.

    Of an animation the first frame is kept. Kinds: PNG, JPEG, GIF, WebP, TIFF.

    Raises:
        LookupError, ValueError, struct.error, zlib.error: the file is damaged in its structure.
    """
    if data.startswith(PNG):
        return _png(data)
    if data.startswith(b"\xff\xd8"):
        return _jpeg(data)
    if data.startswith(b"GIF8"):
        return _gif(data)
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return _webp(data)
    if data[:4] in TIFF:
        return Tiff(data).rewritten()
    return None


def _chunks(data: bytes) -> Iterator[tuple[bytes, bytes, bool]]:
    """Kind, content and soundness of each chunk of a PNG, up to its end."""
    place = len(PNG)
    while place + 12 <= len(data):
        (length,) = struct.unpack_from(">I", data, place)
        kind, end = data[place + 4 : place + 8], place + 8 + length
        content, checksum = data[place + 8 : end], data[end : end + 4]
        yield kind, content, checksum == zlib.crc32(kind + content).to_bytes(4, "big")
        if kind == b"IEND":
            return
        place = end + 4
    raise ValueError("truncated")


def _png(data: bytes) -> bytes:
    made = [PNG]
    head = data[16:29]
    for kind, content, sound in _chunks(data):
        pixels = kind[:1].isupper()  # "critical", by the standard
        if pixels or (sound and _png_needs(kind, content, head)):
            made += [struct.pack(">I", len(content)), kind, content]
            # A wrong checksum of pixels stays wrong, and is found by the reader.
            made += [(zlib.crc32(kind + content) ^ (not sound)).to_bytes(4, "big")]
    return b"".join(made)


def _png_needs(kind: bytes, content: bytes, head: bytes) -> bool:
    """Whether a chunk that decoders may leave out says how the picture looks or is turned."""
    if kind == b"tRNS":
        return len(content) == {0: 2, 2: 6}.get(head[9], len(content))
    if kind == b"eXIf":
        return True
    keyword, _, rest = content.partition(b"\0")
    if kind == b"zTXt" and keyword.startswith(b"Raw profile type"):
        unpacker = zlib.decompressobj()
        try:
            unpacker.decompress(rest[1:], _TEXT_LIMIT)
        except zlib.error:
            return False
        return unpacker.eof
    return kind == b"iTXt" and keyword == b"XML:com.adobe.xmp" and rest[:1] == b"\0"


def _jpeg(data: bytes) -> bytes:
    made, place = [data[:2]], 2
    turned = False
    while True:
        place = data.index(b"\xff", place)  # what lies between segments is no picture
        marker = data[place + 1]
        if marker in (0x00, 0xFF):
            place += 1
            continue
        if marker in _JPEG_ALONE:
            place += 2
            continue
        if marker == 0xDA:
            return b"".join([*made, data[place:]])
        (length,) = struct.unpack_from(">H", data, place + 2)
        segment = data[place : place + 2 + max(length, 2)]
        content = segment[4:]
        exif = marker == 0xE1 and content.startswith(b"Exif\0\0") and not turned
        colours = marker == 0xEE and content.startswith(b"Adobe") and len(content) >= 12
        turned |= exif
        if marker not in _JPEG_SPEAKS or exif or colours:
            made.append(segment)
        place += len(segment)


def _gif(data: bytes) -> bytes:
    place = 13 + _palette(data[10])
    made = [data[:place]]
    while data[place] == 0x21:  # extensions
        start, place = place, place + 2
        if data[start + 1] == 0xF9 and data[place] == 4:
            made.append(data[start : place + 6])  # which colour is clear
        place = _end_of_blocks(data, place)
    if data[place] != 0x2C:
        raise ValueError("no picture")
    end = place + 10 + _palette(data[place + 9])
    return b"".join([*made, data[place : _end_of_blocks(data, end + 1)], b";"])


def _palette(flags: int) -> int:
    return 3 << ((flags & 7) + 1) if flags & 0x80 else 0


def _end_of_blocks(data: bytes, place: int) -> int:
    while data[place]:
        place += data[place] + 1
    return place + 1


def _webp(data: bytes) -> bytes:
    (size,) = struct.unpack_from("<I", data, 4)
    if len(data) < size + 8:
        raise ValueError("truncated")
    made, place = [], 12
    while place + 8 <= size + 8:
        kind, (length,) = data[place : place + 4], struct.unpack_from("<I", data, place + 4)
        end = place + 8 + length + (length & 1)
        if kind in (b"ALPH", b"VP8 ", b"VP8L", b"ANIM", b"ANMF", b"VP8X", b"EXIF"):
            part = data[place:end]
            if kind == b"VP8X":  # there is no profile and no XMP any more
                part = part[:8] + bytes([part[8] & 0b00011010]) + part[9:]
            if end <= size + 8:
                made.append(part)
        place = end
    exif = any(part.startswith(b"EXIF") for part in made)
    made = [
        part[:8] + bytes([part[8] | 8 * exif]) + part[9:] if part.startswith(b"VP8X") else part
        for part in made
    ]
    body = b"WEBP" + b"".join(made)
    return b"RIFF" + struct.pack("<I", len(body)) + body


class Tiff:
    """The first directory of a TIFF.

    Attributes:
        tags: by number, the entry's place in the file, its type, count and where its values are;
            what lies outside of the file is left out.
    """

    def __init__(self, data: bytes) -> None:
        """Read the directory.

        Raises:
            struct.error: it lies outside of the file.
        """
        self._data = data
        self._order = "<" if data.startswith(b"II") else ">"
        self._big = b"+" in data[2:4]
        self._offset = self._order + ("Q" if self._big else "I")
        self._width = 8 if self._big else 4
        self._entry = 4 + 2 * self._width
        self._first = 8 if self._big else 4
        self.tags: dict[int, tuple[int, int, int, int]] = {}
        self._outside: set[int] = set()
        (start,) = struct.unpack_from(self._offset, data, self._first)
        number = self._order + ("Q" if self._big else "H")
        (count,) = struct.unpack_from(number, data, start)
        start += struct.calcsize(number)
        struct.unpack_from(self._offset, data, start + self._entry * count)
        for place in range(start, start + self._entry * count, self._entry):
            tag, kind = struct.unpack_from(self._order + "HH", data, place)
            (number_of_values,) = struct.unpack_from(self._offset, data, place + 4)
            size = number_of_values * _TIFF_SIZES[kind] if kind < len(_TIFF_SIZES) else 0
            values = place + 4 + self._width
            if size > self._width:
                (values,) = struct.unpack_from(self._offset, data, values)
            if not size or values + size > len(data):
                self._outside.add(tag)
            else:
                self.tags.setdefault(tag, (place, kind, number_of_values, values))

    def short(self, tag: int) -> int | None:
        """The first value of a tag of 16-bit numbers, if there is such a tag."""
        _, kind, _, values = self.tags.get(tag, (0, 0, 0, 0))
        if kind != 3:
            return None
        return int(struct.unpack_from(self._order + "H", self._data, values)[0])

    def _numbers(self, tag: int) -> tuple[int, ...]:
        _, kind, count, values = self.tags.get(tag, (0, 3, 0, 0))
        letter = {3: "H", 4: "I", 16: "Q"}[kind]
        return struct.unpack_from(f"{self._order}{count}{letter}", self._data, values)

    def with_short(self, tag: int, value: int) -> bytes:
        """The file with another first value of such a tag."""
        values = self.tags[tag][3]
        changed = struct.pack(self._order + "H", value)
        return self._data[:values] + changed + self._data[values + 2 :]

    def rewritten(self) -> bytes:
        """The file with a directory of its pixels alone, put behind its end.

        Raises:
            ValueError: what describes the pixels lies outside of the file.
        """
        if self._outside & _TIFF_PIXELS - {_TIFF_ORIENTATION}:
            raise ValueError("truncated")
        for offsets, sizes in ((273, 279), (324, 325)):  # strips, tiles
            ends = map(sum, zip(self._numbers(offsets), self._numbers(sizes), strict=True))
            if max(ends, default=0) > len(self._data):
                raise ValueError("truncated")
        entries = [
            self._data[place : place + self._entry]
            for tag, (place, kind, number, _) in sorted(self.tags.items())
            if tag in _TIFF_PIXELS and (tag != _TIFF_ORIENTATION or (kind, number) == (3, 1))
        ]
        data = self._data + b"\0" * (-len(self._data) % 8)
        head = struct.pack(self._offset, len(data))
        count = struct.pack(self._order + ("Q" if self._big else "H"), len(entries))
        start = data[: self._first] + head + data[self._first + self._width :]
        return start + count + b"".join(entries) + b"\0" * self._width
