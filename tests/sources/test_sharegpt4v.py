"""ShareGPT4V: descriptions without tags, absentees by name, a long list in little memory."""

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from paragrain.collection import Collection, Skipped
from paragrain.errors import ParagrainError, UsageError
from paragrain.sources import sharegpt4v
from paragrain.sources.sharegpt4v import import_sharegpt4v, read_list


def entry(image: Any, *turns: tuple[str, Any], id: str = "1") -> dict[str, Any]:
    turns = turns or (("human", "<image>\nDescribe it."), ("gpt", f"About {image}."))
    return {"id": id, "image": image, "conversations": [{"from": f, "value": v} for f, v in turns]}


def put_images(root: Path, *paths: str) -> Path:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8)).save(root / path)
    return root


def put(path: Path, entries: Any) -> Path:
    path.write_text(json.dumps(entries), "utf-8")
    return path


def test_a_miniature_of_the_real_file(tmp_path: Path) -> None:
    coco, sam = "coco/train2017/000000000009.jpg", "sam/images/sa_1.jpg"
    llava = "llava/llava_pretrain/images/00453/004539375.jpg"
    roots = [put_images(tmp_path / "a", coco), put_images(tmp_path / "b", sam, coco)]
    texts = put(
        tmp_path / "share.json",
        [
            entry(coco, ("human", "<image>\nDescribe"), ("gpt", "One.\n\nTwo 🙂")),
            entry(sam, ("human", "Describe\n<image>"), ("gpt", "<image>\nA <image>tag.\n<image>")),
            entry(llava),
            entry(coco, ("gpt", "first"), ("human", "more"), ("gpt", "second")),
            entry(coco),
        ],
    )
    report = import_sharegpt4v(texts, roots, tmp_path / "c", progress=False)
    assert report.skipped == [(llava, "its file is in none of the folders of images")]
    assert report.notes == ["2 entries show an image that an entry before shows"]
    records = {r.id: r for r in Collection.open(tmp_path / "c").records()}
    assert {id: r.description for id, r in records.items()} == {
        coco: "One.\n\nTwo 🙂",
        sam: "A tag.",
        f"{coco}#2": "first",
        f"{coco}#3": f"About {coco}.",
    }
    assert {r.group for r in records.values()} == {coco, sam}
    assert {r.image.path for r in records.values()} == {coco, sam}
    again = import_sharegpt4v(texts, roots, tmp_path / "c", progress=False)
    assert (again.written, again.kept, again.skipped) == (0, 4, report.skipped)
    put_images(roots[0], llava)
    mended = import_sharegpt4v(texts, roots, tmp_path / "c", progress=False)
    assert (mended.written, mended.kept, mended.skipped) == (1, 4, [])


def test_the_first_entries_are_held_out_whether_usable_or_not(tmp_path: Path) -> None:
    names = [f"{n}.png" for n in range(6)]
    root = put_images(tmp_path / "i", *names[1:])
    texts = put(tmp_path / "s.json", [entry(name) for name in [*names, "2.png"]])
    report = import_sharegpt4v(texts, [root], tmp_path / "c", hold_out=3, progress=False)
    assert report.splits == {"test": 2, "train": 4}
    assert Collection.open(tmp_path / "c").ids("test") == ["1.png", "2.png"]
    assert report.notes == [
        "1 entries show an image that an entry before shows",
        "1 later entries show an image of the split test",
    ]


def test_what_is_amiss_is_named(tmp_path: Path) -> None:
    root = put_images(tmp_path / "i", "a.png")
    put_images(tmp_path, "out.png")
    texts = put(
        tmp_path / "s.json",
        [
            {"id": "text only", "conversations": []},
            "no object",
            entry("../out.png"),
            entry(str(tmp_path / "out.png")),
            entry("a.png", ("human", "?")),
            entry("a.png", ("gpt", " <image> ")),
            entry("a.png", ("gpt", None)),
            {"image": "a.png", "conversations": {"from": "gpt"}},
            entry("n" * 5000),
            entry("a.png", ("gpt", "\ud800")),
            entry("a.png"),
        ],
    )
    report = import_sharegpt4v(texts, [root], tmp_path / "c", progress=False)
    leaves = "its file name leaves the folder of the images"
    assert report.skipped == [
        ("entry 1", "it names no image file"),
        ("entry 2", "it names no image file"),
        ("entry 3", leaves),
        (str(tmp_path / "out.png"), "its file is in none of the folders of images"),
        ("a.png", "it has no turn that comes from gpt"),
        ("a.png#2", "an empty text as its description"),
        ("a.png#3", "it has no turn that comes from gpt"),
        ("a.png#4", "it has no turn that comes from gpt"),
        ("n" * 5000, "its file is in none of the folders of images"),
        ("a.png#5", "a text that is not valid Unicode as its description"),
    ]
    assert Collection.open(tmp_path / "c").ids() == ["a.png#6"]


@pytest.mark.parametrize("chunk", [1, 2, 7, 64, 10_000])
@pytest.mark.parametrize("indent", [None, 2])
def test_a_list_reads_the_same_in_any_chunks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int, indent: int | None
) -> None:
    monkeypatch.setattr(sharegpt4v, "CHUNK_CHARACTERS", chunk)
    entries = [entry(f"{n}.jpg", ("gpt", 'é\u2028🙂 "]}, {[' * n)) for n in range(5)]
    entries += [12345, "a", None, [], {}]
    path = tmp_path / "l.json"
    for ascii_only in (True, False):
        text = json.dumps(entries, indent=indent, ensure_ascii=ascii_only)
        path.write_text(f"\ufeff[{text[1:]}\n", "utf-8")
        problems = Skipped(tmp_path)
        assert list(read_list(path, problems)) == entries
        assert list(problems) == []


@pytest.mark.parametrize("cut", ["end", "middle", "bracket", "garbage"])
def test_of_a_damaged_list_what_lies_before_comes_in(tmp_path: Path, cut: str) -> None:
    root = put_images(tmp_path / "i", "0.png", "1.png", "2.png")
    text = json.dumps([entry(f"{n}.png") for n in range(3)])
    second = text.index('{"id"', text.index("About 1."))
    text = {
        "end": text[:-3],
        "middle": text[: second + 9],
        "bracket": text[:-1],
        "garbage": text[:second] + "}" + text[second:] + " " * 100,
    }[cut]
    (tmp_path / "s.json").write_text(text)
    report = import_sharegpt4v(tmp_path / "s.json", [root], tmp_path / "c", progress=False)
    count = 3 if cut == "bracket" else 2
    reason = "the file is cut off or damaged here: the entries before that come in"
    assert report.skipped == [(f"entry {count + 1}", reason)]
    assert report.written == count


def test_a_large_list_takes_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "large.json"
    with path.open("w") as file:
        for n in range(30_000):
            file.write(f"{', ' if n else '['}{json.dumps(entry(f'{n}.jpg', ('gpt', 'x' * 1300)))}")
        file.write("]")
    assert path.stat().st_size > 40e6
    tracemalloc.start()
    assert sum(1 for _ in read_list(path, Skipped(tmp_path))) == 30_000
    assert tracemalloc.get_traced_memory()[1] < 12e6
    tracemalloc.stop()


def test_what_cannot_be_imported_says_so(tmp_path: Path) -> None:
    texts = put(tmp_path / "s.json", [entry("a.png")])
    with pytest.raises(UsageError, match="there is no folder"):
        import_sharegpt4v(texts, [tmp_path / "i"], tmp_path / "c", progress=False)
    with pytest.raises(ParagrainError, match=r"a\.png: its file is in none"):
        import_sharegpt4v(texts, [tmp_path], tmp_path / "c", progress=False)
    with pytest.raises(UsageError, match="JSON list"):
        import_sharegpt4v(put(tmp_path / "o.json", {}), [tmp_path], tmp_path / "c", progress=False)
    with pytest.raises(UsageError, match="cannot be read"):
        import_sharegpt4v(tmp_path / "no.json", [tmp_path], tmp_path / "c", progress=False)
