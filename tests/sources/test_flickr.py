"""Flickr's captions come in from each of their files, in order and to the last character."""

from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from paragrain.collection import Collection
from paragrain.errors import ParagrainError
from paragrain.sources import import_flickr

ODD = "a\u2028b\x85c 🦉 שלום\u200f ."


@pytest.fixture
def images(tmp_path: Path) -> Path:
    folder = tmp_path / "Images"
    folder.mkdir()
    for shade, name in enumerate(["0012.jpg", "1000092795.jpg", "2199200615.jpg", "50% #1.jpg"]):
        Image.new("RGB", (8, 8), (shade, 0, 0)).save(folder / name)
    return folder


def put(path: Path, *lines: str, end: str = "\n") -> Path:
    path.write_bytes("".join(line + end for line in lines).encode("utf-8", "surrogateescape"))
    return path


def captions_of(folder: Path) -> dict[str, list[str]]:
    return {record.id: record.captions for record in Collection.open(folder).records()}


def test_token_files_are_put_in_the_order_of_their_numbers(images: Path, tmp_path: Path) -> None:
    file = put(
        tmp_path / "Flickr8k.token.txt",
        "0012.jpg#1\tsecond #1 .",
        f"0012.jpg#0\t{ODD}",
        "0012.jpg#10\tlast",
        "0012.jpg#2\tthird\twith a tab ",
        "50% #1.jpg#0\tNA",
        "2258277193_586949ec62.jpg.1#0\tthe stray one of Flickr8k",
        "1000092795.jpg\tno number",
        "1000092795.jpg#0\t ",
        "../Images/0012.jpg#0\toutside",
        "",
    )
    report = import_flickr(file, images, tmp_path / "c", split="test", progress=False)
    assert report.splits == {"test": 3}
    assert report.skipped == [
        ("line 7", "it is not `name#number TAB caption`"),
        ("1000092795.jpg", "an empty text"),
        ("0012", "its file name leaves the folder of the images"),
        ("2258277193_586949ec62.jpg", "its file is missing: 2258277193_586949ec62.jpg.1"),
    ]
    assert report.notes == ["1 of the 4 listed images are missing", "1 images have no captions"]
    assert captions_of(tmp_path / "c") == {
        "0012": [ODD, "second #1 .", "third\twith a tab ", "last"],
        "50% #1": ["NA"],
        "1000092795": [],
    }


def test_stray_quotes_swallow_no_rows(images: Path, tmp_path: Path) -> None:
    rows = ['0012.jpg,"one', "1000092795.jpg,two", '0012.jpg,three"']
    file = put(tmp_path / "captions.txt", "image,caption", *rows)
    report = import_flickr(file, images, tmp_path / "c", progress=False)
    assert report.skipped == []
    assert captions_of(tmp_path / "c") == {"0012": ['"one', 'three"'], "1000092795": ["two"]}


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_sound_csv_is_read_as_csv(images: Path, tmp_path: Path, end: str) -> None:
    file = put(
        tmp_path / "captions.txt",
        "image,caption",
        '0012.jpg,"A man , a ""dog"" , and more ."',
        f"0012.jpg,{ODD}",
        "1000092795.jpg,plain words .",
        '0012.jpg,"over two\nlines"',
        end=end,
    )
    report = import_flickr(file, images, tmp_path / "c", progress=False)
    assert (report.skipped, report.notes) == ([], [])
    assert captions_of(tmp_path / "c") == {
        "0012": ['A man , a "dog" , and more .', ODD, "over two\nlines"],
        "1000092795": ["plain words ."],
    }


def test_unsound_csv_is_read_line_by_line(images: Path, tmp_path: Path) -> None:
    file = put(
        tmp_path / "captions.txt",
        "image,caption",
        '0012.jpg,"Quoted, as it should be"',
        "0012.jpg,not quoted, with commas, three",
        '0012.jpg,"Hello", said the man',
        '1000092795.jpg,"never closed',
        "2199200615.jpg",
        "1000092795.jpg,not utf-8 \udcff",
    )
    report = import_flickr(file, images, tmp_path / "c", progress=False)
    assert report.skipped == [
        ("line 6", "it has 1 cells, and 2 are needed"),
        ("1000092795.jpg", "a text that is not valid Unicode"),
    ]
    assert captions_of(tmp_path / "c") == {
        "0012": [
            "Quoted, as it should be",
            "not quoted, with commas, three",
            '"Hello", said the man',
        ],
        "1000092795": ['"never closed'],
    }


def test_the_broken_row_of_flickr30k_is_mended(images: Path, tmp_path: Path) -> None:
    file = put(
        tmp_path / "results.csv",
        "image_name| comment_number| comment",
        '1000092795.jpg| 1| He wears an " Army " shirt | cap .',
        "1000092795.jpg| 0| Two men , one dog .",
        "2199200615.jpg| 4   A dog runs across the grass .",
        "2199200615.jpg| 3| A dog .",
        "2199200615.jpg| five| A dog .",
        "0012.jpg",
    )
    report = import_flickr(file, images, tmp_path / "c", progress=False)
    assert report.notes == ["line 4 lacks the separator after its number: mended"]
    assert report.skipped == [
        ("line 6", "its number is 'five'"),
        ("line 7", "it has 1 cells, and 3 are needed"),
    ]
    assert captions_of(tmp_path / "c") == {
        "1000092795": ["Two men , one dog .", 'He wears an " Army " shirt | cap .'],
        "2199200615": ["A dog .", "A dog runs across the grass ."],
    }


def test_three_columns_with_commas(images: Path, tmp_path: Path) -> None:
    file = put(
        tmp_path / "captions.txt",
        "image_name,comment_number,comment",
        "0012.jpg,1,second",
        '0012.jpg,0,"first, quoted"',
    )
    import_flickr(file, images, tmp_path / "c", progress=False)
    assert captions_of(tmp_path / "c") == {"0012": ["first, quoted", "second"]}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "not in a layout of Flickr"),
        ("0012.jpg,a caption without a header\n", "not in a layout of Flickr"),
        ("image\nx.jpg\n", "not in a layout of Flickr"),
        ("image,size,caption\n", "not in a layout of Flickr"),
        ("image,caption\n", "lists no images"),
        ("image,caption\nabsent.jpg,where?\n", "none of the 1 images"),
    ],
)
def test_what_cannot_be_used_says_why(
    images: Path, tmp_path: Path, content: str, reason: str
) -> None:
    (tmp_path / "captions.txt").write_text(content)
    with pytest.raises(ParagrainError, match=reason):
        import_flickr(tmp_path / "captions.txt", images, tmp_path / "c", progress=False)
    assert not (tmp_path / "c").exists()


def test_the_command(paragrain: Callable, images: Path, tmp_path: Path) -> None:
    file = put(tmp_path / "captions.txt", "image,caption", "0012.jpg,one", "x.jpg,absent")
    args = ["import", "flickr", "--captions", file, "--images", images, tmp_path / "c"]
    done = paragrain(*args, "--split", "val")
    assert done.code == 3
    assert "1 records (val 1)" in done.out
    assert "x: its file is missing: x.jpg" in done.err
    assert paragrain(*args, "--json").json["splits"] == {"val": 1}  # nobody says another
    assert paragrain(*args[:4], tmp_path / "absent", *args[5:]).code == 2
    assert "Example" in paragrain("import", "flickr", "--help").out
