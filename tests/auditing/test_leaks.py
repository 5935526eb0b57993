"""A leak planted on purpose: what share of it is found, and what share of what is found is one."""

import io
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image, ImageDraw, ImageFont

from paragrain.auditing import AuditReport, audit
from paragrain.auditing.report import NOT_FOUND
from paragrain.collection import Collection, ImageRef, Record
from paragrain.images import decode
from paragrain.sources.scenes.render import png
from paragrain.sources.scenes.world import scenes_of

Collect = Callable[[Path, list[Record]], Collection]
Worsened = Callable[[bytes, random.Random], bytes]
IMAGE = ("bytes", "pixels", "near")


def drawn(split: str, count: int, family: int) -> list[bytes]:
    return [png(scene) for _, scene in scenes_of(split, count, 5, family=family)]


@pytest.fixture
def plant(collect: Collect, worsened: Worsened, tmp_path: Path) -> Callable[..., AuditReport]:
    """Copy a share of `own` into `base`, worse and under other names, and audit; print figures."""

    def run(base: list[bytes], own: list[bytes], share: float) -> AuditReport:
        rng = random.Random(7)
        chosen = rng.sample(range(len(own)), max(1, round(share * len(own))))
        records = [Record(f"t{n}", ImageRef(d), captions=[f"own {n}"]) for n, d in enumerate(base)]
        records += [
            Record(f"c{n}", ImageRef(worsened(own[n], rng)), captions=[f"LEAKED caption no. {n}!"])
            for n in chosen
        ]
        tested = [
            Record(f"e{n}", ImageRef(d), captions=[f"Leaked caption, no {n}"])
            for n, d in enumerate(own)
        ]
        report = audit(
            collect(tmp_path / "train", records), collect(tmp_path / "eval", tested), progress=False
        )
        planted = {(f"c{n}", f"e{n}") for n in chosen}
        for what, reasons in (("images", IMAGE), ("texts", ("text",))):
            found = {(f.train, f.evaluation) for f in report.findings if f.reason in reasons}
            recall, precision = (
                len(found & planted) / len(planted),
                len(found & planted) / len(found),
            )
            print(f"{what}: {len(planted)} planted, recall {recall:.3f}, precision {precision:.3f}")
            report.settings[what] = (recall, precision)
        return report

    return run


def test_a_leak_into_scenes(plant: Callable[..., AuditReport]) -> None:
    report = plant(drawn("train", 800, 8), drawn("test", 400, 1), 0.1)
    recall, precision = report.settings["images"]
    assert recall >= 0.95
    assert precision >= 0.99
    assert report.settings["texts"] == (1.0, 1.0)


def test_a_leak_among_near_twins(plant: Callable[..., AuditReport]) -> None:
    """Each copy has seven siblings that differ in one fact; a few differ in less than JPEG does."""
    report = plant(drawn("train", 400, 8), drawn("twins", 480, 8), 0.3)
    recall, precision = report.settings["images"]
    assert recall >= 0.95
    assert precision >= 0.99
    assert report.refused > 100


def test_near_twins_are_different_pictures(collect: Collect, tmp_path: Path) -> None:
    twins = [Record(str(n), ImageRef(d)) for n, d in enumerate(drawn("train", 800, 8))]
    report = audit(collect(tmp_path / "twins", twins), progress=False)
    pairs_of_twins = 100 * 8 * 7 // 2
    assert report.findings == []
    assert report.refused > 0.2 * pairs_of_twins


@pytest.mark.parametrize("share", [0.1, 1.0])
def test_a_leak_into_photographs(
    plant: Callable[..., AuditReport], shared: Path, share: float
) -> None:
    files = sorted((shared / "photos" / "images").glob("*.jpg"))
    photos = [file.read_bytes() for file in files]
    report = plant(photos[25:], photos[:25], share)
    assert report.settings["images"] == (1.0, 1.0)
    assert report.settings["texts"] == (1.0, 1.0)


def test_every_report_says_what_is_not_found(collect: Collect, tmp_path: Path) -> None:
    one = collect(tmp_path / "one", [Record("1", ImageRef(drawn("train", 1, 1)[0]))])
    report = audit(one, progress=False)
    assert "mirrored or turned" in NOT_FOUND
    assert report.as_dict()["not_found"] == NOT_FOUND
    assert NOT_FOUND.split(";")[0] in report.page()


def test_altered_copies_of_photographs(collect: Collect, shared: Path, tmp_path: Path) -> None:
    """Brighter, in grey, dated in a corner, cropped by 3 %: found, and nothing else."""
    files = sorted((shared / "photos" / "images").glob("*.jpg"))
    photos = [decode(file) for file in files[1::2]]
    altered: list[Image.Image] = []
    for number, photo in enumerate(photos):
        width, height = photo.size
        dated = photo.copy()
        font = ImageFont.load_default(size=height * 0.05)
        ImageDraw.Draw(dated).text((width * 0.6, height * 0.92), "2024-07-13", "orange", font)
        box = (round(0.03 * width), round(0.03 * height), round(0.97 * width), round(0.97 * height))
        brighter = photo.point([min(255, round(1.1 * v)) for v in range(256)] * 3)
        versions = (brighter, dated, photo.crop(box), photo.convert("L").convert("RGB"))
        altered.append(versions[number % 4])
    sides = []
    for name, pictures in (("train", altered), ("test", photos)):
        records = []
        for number, picture in enumerate(pictures):
            buffer = io.BytesIO()
            picture.save(buffer, "JPEG", quality=70)
            records.append(Record(f"{name} {number}", ImageRef(buffer.getvalue())))
        sides.append(collect(tmp_path / name, records))
    found = {(f.train, f.evaluation) for f in audit(*sides, progress=False).findings}
    planted = {(f"train {n}", f"test {n}") for n in range(len(photos))}
    assert found <= planted
    assert len(found) >= len(planted) - 1
