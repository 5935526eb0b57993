"""Which altered copies does the audit find? One line of Markdown for each kind of alteration.

    python benchmarks/audit_copies.py --photos photos/images --every 2 --first 1

Each photograph is altered once for each kind and seed, saved as JPEG of quality 60 to 95, and
planted beside all other photographs into what a model has learned from; the originals are what it
is tested on. Found: copies that the audit pairs with their originals, of all seeds and, in
brackets, the fewest and the most of one seed. False: any other pair. The alterations below the line
are those that the audit does not claim to find.
"""

import argparse
import io
import random
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont, ImageOps

from paragrain import audit
from paragrain.collection import Collection, ImageRef, Item, Record, write_collection
from paragrain.errors import ParagrainError
from paragrain.images import decode

Alter = Callable[[Image.Image, random.Random], Image.Image]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--photos", type=Path, required=True, help="a folder of JPEG files")
    parser.add_argument("--every", type=int, default=1, help="alter every n-th of them ...")
    parser.add_argument("--first", type=int, default=0, help="... from this one on")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    return parser.parse_args()


def main() -> None:
    options = arguments()
    photos = [decode(file.read_bytes()) for file in sorted(options.photos.glob("*.jpg"))]
    chosen = photos[options.first :: options.every]
    if not chosen:
        sys.exit(f"error: {options.photos} holds no such .jpg files")
    others = [photo for photo in photos if photo not in chosen]
    print(f"{len(chosen)} photographs among {len(others)} others, seeds {options.seeds}\n")
    print("| alteration | planted | found | share | false |\n|---|--:|--:|--:|--:|")
    try:
        for kinds in (CLAIMED, NOT_CLAIMED):
            table = [report(kind, kinds[kind], chosen, others, options.seeds) for kind in kinds]
            planted, found, false = (sum(column) for column in zip(*table, strict=True))
            print(
                f"| **all** | {planted} | {found} | {found / planted:.1%} | {false} |", flush=True
            )
    except ParagrainError as error:
        sys.exit(f"error: {error}")


def report(
    kind: str,
    alter: Alter,
    photos: list[Image.Image],
    others: list[Image.Image],
    seeds: list[int],
) -> tuple[int, int, int]:
    """Print the line of one kind: copies planted and found, and false pairs."""
    counts = [planted(f"{kind} {seed}", alter, photos, others) for seed in seeds]
    found, false = (sum(column) for column in zip(*counts, strict=True))
    total = len(photos) * len(seeds)
    least, most = (pick(count for count, _ in counts) for pick in (min, max))
    share = f"{found / total:.1%} ({least}-{most} of {len(photos)})"
    print(f"| {kind} | {total} | {found} | {share} | {false} |", flush=True)
    return total, found, false


def planted(
    seed: str, alter: Alter, photos: list[Image.Image], others: list[Image.Image]
) -> tuple[int, int]:
    """Found and false pairs of one audit."""
    rng = random.Random(seed)
    copies = [_jpeg(alter(photo, rng), rng.randint(60, 95)) for photo in photos]
    with tempfile.TemporaryDirectory() as folder:
        sides = [
            _collect(Path(folder) / name, pictures)
            for name, pictures in (
                ("train", [*copies, *(_png(photo) for photo in others)]),
                ("test", [_png(photo) for photo in photos]),
            )
        ]
        found = {(pair.train, pair.evaluation) for pair in audit(*sides, progress=False).findings}
    right = {(f"train {n}", f"test {n}") for n in range(len(photos))}
    return len(found & right), len(found - right)


def _collect(folder: Path, pictures: list[bytes]) -> Collection:
    records = [Record(f"{folder.name} {n}", ImageRef(data)) for n, data in enumerate(pictures)]
    items = [Item(r.id, r.id, lambda r=r: r, trusted=True) for r in records]
    write_collection(folder, items, name=folder.name, source="benchmark", progress=False)
    return Collection.open(folder)


def _jpeg(image: Image.Image, quality: int) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=quality)
    return buffer.getvalue()


def _png(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "PNG", compress_level=1)
    return buffer.getvalue()


# --- alterations ------------------------------------------------------------------------------


def _curve(image: Image.Image, curve: Callable[[float], float]) -> Image.Image:
    """Each value from 0 to 1 by a curve."""
    table = [min(255, max(0, round(255 * curve(value / 255)))) for value in range(256)]
    return image.point(table * 3)


def _scaled(low: float, high: float) -> Alter:
    def alter(image: Image.Image, rng: random.Random) -> Image.Image:
        factor = rng.uniform(low, high)
        return _curve(image, lambda value: value * factor)

    return alter


def _contrast(image: Image.Image, rng: random.Random) -> Image.Image:
    factor = rng.choice([rng.uniform(0.6, 0.9), rng.uniform(1.1, 1.4)])
    return _curve(image, lambda value: (value - 0.5) * factor + 0.5)


def _gamma(image: Image.Image, rng: random.Random) -> Image.Image:
    power = rng.choice([rng.uniform(0.6, 0.9), rng.uniform(1.1, 1.6)])
    return _curve(image, lambda value: value**power)


def _cast(image: Image.Image, rng: random.Random) -> Image.Image:
    factors = [rng.uniform(0.8, 1.2), rng.uniform(0.9, 1.1), rng.uniform(0.8, 1.2)]
    return image.point([min(255, int(v * factor)) for factor in factors for v in range(256)])


def _grey(image: Image.Image, rng: random.Random) -> Image.Image:
    return image.convert("L").convert("RGB")


def _dated(image: Image.Image, rng: random.Random) -> Image.Image:
    dated = image.copy()
    draw = ImageDraw.Draw(dated)
    font = ImageFont.load_default(size=max(8, image.height * rng.uniform(0.03, 0.07)))
    width, height = draw.textbbox((0, 0), "2024-07-13 18:42", font=font)[2:]
    margin = 0.02 * image.height
    x, y = (
        rng.choice([margin, image.width - margin - width]),
        rng.choice([margin, image.height - margin - height]),
    )
    colour = rng.choice(["orange", "white", "black", "yellow"])
    draw.text((x, y), "2024-07-13 18:42", fill=colour, font=font)
    return dated


def _framed(image: Image.Image, rng: random.Random) -> Image.Image:
    width = round(rng.uniform(0.01, 0.04) * min(image.size))
    return ImageOps.expand(image, width, rng.choice(["white", "black", "grey"]))


def _cut(image: Image.Image, left: float, top: float, right: float, bottom: float) -> Image.Image:
    width, height = image.size
    box = left * width, top * height, (1 - right) * width, (1 - bottom) * height
    return image.crop(tuple(round(edge) for edge in box))


def _cropped(share: float) -> Alter:
    return lambda image, rng: _cut(image, share, share, share, share)


def _one_side(image: Image.Image, rng: random.Random) -> Image.Image:
    shares = [0.0] * 4
    shares[rng.randrange(4)] = rng.uniform(0.01, 0.05)
    return _cut(image, *shares)


def _rescaled(image: Image.Image, rng: random.Random) -> Image.Image:
    size = tuple(max(16, round(side * rng.uniform(0.3, 1.5))) for side in image.size)
    return image.resize(size, Image.Resampling.BICUBIC)


def _compressed(image: Image.Image, rng: random.Random) -> Image.Image:
    return Image.open(io.BytesIO(_jpeg(image, rng.randint(20, 95)))).convert("RGB")


def _two(image: Image.Image, rng: random.Random) -> Image.Image:
    one, other = rng.sample([alter for kind, alter in CLAIMED.items() if alter is not _two], 2)
    return other(one(image, rng), rng)


def _banner(image: Image.Image, rng: random.Random) -> Image.Image:
    changed = image.copy()
    box = (0, round(0.8 * image.height), image.width, image.height)
    ImageDraw.Draw(changed).rectangle(box, fill="black")
    return changed


CLAIMED: dict[str, Alter] = {
    "5 to 30 % brighter": _scaled(1.05, 1.3),
    "5 to 30 % darker": _scaled(0.7, 0.95),
    "contrast x 0.6 to 1.4": _contrast,
    "gamma 0.6 to 1.6": _gamma,
    "colour cast": _cast,
    "grey": _grey,
    "date stamp in a corner": _dated,
    "frame of 1 to 4 %": _framed,
    "1 % cropped on each side": _cropped(0.01),
    "2 % cropped on each side": _cropped(0.02),
    "3 % cropped on each side": _cropped(0.03),
    "5 % cropped on each side": _cropped(0.05),
    "1 to 5 % cropped on one side": _one_side,
    "each side scaled x 0.3 to 1.5": _rescaled,
    "JPEG of quality 20 to 95, twice": _compressed,
    "two of these at once": _two,
}
NOT_CLAIMED: dict[str, Alter] = {
    "mirrored": lambda image, rng: ImageOps.mirror(image),
    "turned by 90 degrees": lambda image, rng: image.transpose(Image.Transpose.ROTATE_90),
    "turned by 2 degrees": lambda image, rng: image.rotate(2, Image.Resampling.BICUBIC),
    "negative": lambda image, rng: ImageOps.invert(image),
    "8 % cropped on each side": _cropped(0.08),
    "12 % cropped on each side": _cropped(0.12),
    "15 % cropped on each side": _cropped(0.15),
    "banner over the lowest fifth": _banner,
}


if __name__ == "__main__":
    main()
