"""Tables as spreadsheets and scripts write them: no rows are glued, no text is lost unsaid."""

import csv
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from paragrain.collection import Collection
from paragrain.sources.texts import read_texts


def read(tmp_path: Path, content: str | bytes, name: str = "t.csv") -> tuple[dict[str, Any], Any]:
    """The values by the name of the image, and the table."""
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    table = read_texts(path)
    return {(row.names or row.ids)[0]: row.values.get("captions") for row in table.rows}, table


@pytest.mark.parametrize(
    "lines",
    [
        ['a.jpg,"a dog', "b.jpg,a cat", 'c.jpg,a bird"'],
        ['a.jpg,"a dog', 'b.jpg,a cat 5"', "c.jpg,a bird"],
        ['a.jpg,"6 inch, long', 'b.jpg,a cat, 5"', "c.jpg,a bird"],
        ['a.jpg,"a dog', 'b.jpg a cat"', "c.jpg,a bird"],
    ],
)
@pytest.mark.parametrize("name", ["t.csv", "t.tsv"])
def test_a_stray_quote_glues_no_rows(tmp_path: Path, lines: list[str], name: str) -> None:
    if name == "t.tsv":
        lines = [line.replace(".jpg,", ".jpg\t") for line in lines]
    delimiter = "," if name == "t.csv" else "\t"
    found, table = read(tmp_path, "\n".join([f"file{delimiter}caption", *lines]), name)
    for captions in found.values():
        assert not any(".jpg" in text or "\n" in text for text in captions), captions
    assert found["c.jpg"][0].startswith("a bird")
    named = " ".join(where for where, _ in table.problems)
    assert all(name in found or f"line {n}" in named for n, name in [(2, "a.jpg"), (3, "b.jpg")])


def test_a_stray_quote_in_a_table_whose_text_comes_first(tmp_path: Path) -> None:
    found, table = read(tmp_path, 'caption,file\n"a dog,a.jpg\na cat",b.jpg\na bird,c.jpg\n')
    assert found["c.jpg"] == ["a bird"]
    assert [where for where, _ in table.problems] == ["texts: line 2"]
    assert found.get("b.jpg") in (None, ['a cat"'])


def test_numbers_that_name_images(tmp_path: Path) -> None:
    found, table = read(tmp_path, 'id,caption\n1,"a dog\n2,a cat\n3,a bird"\n4,a fish\n')
    assert found == {"2": ["a cat"], "3": ['a bird"'], "4": ["a fish"]}
    assert [where for where, _ in table.problems] == ["texts: line 2"]


def test_a_bare_first_line_does_not_make_rows_of_quoted_lines(tmp_path: Path) -> None:
    rows = '"a.jpg","a dog\nb.jpg, asleep"\n"b.jpg","a cat"\n'
    for header in ("file,caption\n", '"file","caption"\n'):
        found, table = read(tmp_path, header + rows)
        assert found == {"a.jpg": ["a dog\nb.jpg, asleep"], "b.jpg": ["a cat"]}
        assert table.problems == []
    found, table = read(tmp_path, 'file,"caption"\n' + rows)  # not throughout
    assert len(table.problems) == 1


def test_cells_of_several_lines_stay_where_they_are_sound(tmp_path: Path) -> None:
    texts = ["one\ntwo", "a, b,\nc, d", 'say "hi",\nx.jpg', "\n\n", "last"]
    for quoting in (csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC):
        buffer = io.StringIO()
        writer = csv.writer(buffer, quoting=quoting)
        writer.writerows([["file", "caption"], *([f"{n}.jpg", t] for n, t in enumerate(texts))])
        found, table = read(tmp_path, buffer.getvalue())
        assert [found.get(f"{n}.jpg") for n in (0, 1, 2, 4)] == [
            [t] for n, t in enumerate(texts) if n != 3
        ]
        assert [where for where, _ in table.problems] == ["texts: 3.jpg"]
    found, table = read(tmp_path, 'file,caption\na.jpg,"first\nsecond, and more"\nb.jpg,x\n')
    assert (found, table.problems) == ({"a.jpg": ["first\nsecond, and more"], "b.jpg": ["x"]}, [])


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize(
    "kind", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"]
)
def test_encodings_and_line_ends(tmp_path: Path, kind: str, end: str) -> None:
    content = end.join(["file;caption", "a.jpg;é, ü", "b.jpg;🙂", ""]).encode(kind)
    found, table = read(tmp_path, content)
    assert (found, table.problems) == ({"a.jpg": ["é, ü"], "b.jpg": ["🙂"]}, [])


@pytest.mark.parametrize("first", ["sep=;\n", "sep=;\r\n", '"sep=;"\n'])
def test_the_first_line_of_excel(tmp_path: Path, first: str) -> None:
    found, table = read(tmp_path, first + "file;caption\na.jpg;x, y, z\nb.jpg;x;y\n")
    assert found == {"a.jpg": ["x, y, z"]}
    assert [where for where, _ in table.problems] == ["texts: line 4"]


def test_a_comma_that_nobody_quoted_makes_no_second_caption(tmp_path: Path) -> None:
    lines = ["file,caption,caption 2", "a.jpg,A dog, tied,", "b.jpg,A cat,Two", "c.jpg,A cow,"]
    found, table = read(tmp_path, "\n".join(lines))
    assert found == {"b.jpg": ["A cat", "Two"], "c.jpg": ["A cow"]}
    assert table.problems == [("texts: line 2", "it has 4 cells, the first has 3")]


def test_delimiters_at_the_end_of_lines(tmp_path: Path) -> None:
    found, table = read(tmp_path, "file,caption,\na.jpg,x,\nb.jpg,y,,,\n")
    assert (found, table.problems) == ({"a.jpg": ["x"], "b.jpg": ["y"]}, [])
    found, table = read(tmp_path, "file,caption\na.jpg,x,\nb.jpg,y,z\nc.jpg,w\n")
    assert (found, len(table.problems)) == ({"c.jpg": ["w"]}, 2)


@pytest.mark.parametrize(
    ("cell", "captions"),
    [
        ("['a dog', \"a cat's\"]", ["a dog", "a cat's"]),
        ('["a dog", "a \\"cat\\""]', ["a dog", 'a "cat"']),
        ("['a dog' 'a cat']", ["a dog", "a cat"]),
        ("['a dog'\n \"a cat's\"]", ["a dog", "a cat's"]),
        ("('a dog', 'a cat')", ["a dog", "a cat"]),
        ("array(['a dog', 'a cat'], dtype=object)", ["a dog", "a cat"]),
        ("[{'raw': 'a dog'}, {'raw': 'a cat'}]", ["a dog", "a cat"]),
        ('{"a dog","a cat"}', ["a dog", "a cat"]),
        ("['[Music] a, b', 'c]d']", ["[Music] a, b", "c]d"]),
        ("Index(['a dog', 'a cat'], dtype='object')", ["a dog", "a cat"]),
        ("list(['a dog', 'a cat'])", ["a dog", "a cat"]),
        ("ListValue(['a dog'])", ["a dog"]),
        ("deque(['a dog', 'a cat'], maxlen=5)", ["a dog", "a cat"]),
        ("frozenset({'a dog', 'a cat'})", ["a dog", "a cat"]),
        (
            "<StringArray>\n['a dog', 'a cat']\nLength: 2, dtype: string",
            ["a dog", "a cat"],
        ),
        (
            "tf.Tensor([b'a dog' b'a cat'], shape=(2,), dtype=string)",
            ["a dog", "a cat"],
        ),
        ("print(['a dog', None])", None),
        ("[None]", None),
        ("[nan, nan]", None),
        ("Dog (with 'a ball')", ["Dog (with 'a ball')"]),
        ("dog('s bed)", ["dog('s bed)"]),
        ("[Music] a band plays", ["[Music] a band plays"]),
        ("[Music]", ["[Music]"]),
        ("[left] a dog, a cat [right]", ["[left] a dog, a cat [right]"]),
        ("(a dog, asleep)", ["(a dog, asleep)"]),
        ("'quoted' text", ["'quoted' text"]),
        ("[a dog, a cat]", None),
        ("['a dog', 'a cat'", None),
        ("['a dog', None]", None),
        ("['a dog' ... 'a cat']", None),
        ("['it''s']", None),
        ("[['a dog'], ['a cat']]", None),
    ],
)
def test_lists_in_cells(
    tmp_path: Path, paragrain: Callable[..., Any], cell: str, captions: list[str] | None
) -> None:
    (tmp_path / "p").mkdir()
    Image.new("RGB", (8, 8)).save(tmp_path / "p/a.jpg")
    with (tmp_path / "t.csv").open("w", newline="") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows([["file", "captions"], ["a.jpg", cell]])
    done = paragrain(
        "import", "folder", tmp_path / "p", "--texts", tmp_path / "t.csv", tmp_path / "c"
    )
    (record,) = Collection.open(tmp_path / "c").records()
    assert record.captions == (captions or [])
    assert done.code == (0 if captions else 3)
    assert ("cannot be read as one" in done.err) == (captions is None)


def test_columns_with_numbers_and_columns_that_are_not_used(tmp_path: Path) -> None:
    found, table = read(
        tmp_path, "file,caption_1,caption_2,Caption 3,title,width\na.jpg,x,,z,two words,8\n"
    )
    assert found == {"a.jpg": ["x", "z"]}
    assert table.notes == ["columns of t.csv that are not used: title (1 texts)"]


def test_a_name_twice_in_json_is_named(tmp_path: Path) -> None:
    found, table = read(
        tmp_path,
        '{"id": 1, "caption": "a", "caption": "b"}\n{"id": 2, "caption": "c"}\n',
        "t.jsonl",
    )
    assert found == {"2": ["c"]}
    assert table.problems == [("texts: line 1", "not JSON (the name 'caption' comes twice)")]
