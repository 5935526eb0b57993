"""Tables of texts are read to the character and joined to the right image, or named."""

import json
from pathlib import Path
from typing import Any

import pytest

from paragrain.errors import UsageError
from paragrain.sources.cells import Values, text_problem
from paragrain.sources.names import shown
from paragrain.sources.texts import TextTable, read_texts

STRANGE = [
    "None", "NA", "null", "nan", "true", '"all quoted"', 'in "the" middle', "a,b;c", "a\tb",
    "a\nb", "a\r\nb", " spaces ", "U+2028\u2028here", "U+0085\u0085here", "🙂👩‍👩‍👧", "שלום",
    "\u202eturned", "e\u0301", "<b>bold</b>", "\\n", "[not a list", "{}", "y" * 200_000,
]  # fmt: skip


def table(tmp_path: Path, name: str, content: str | bytes) -> TextTable:
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return read_texts(path)


def values(read: TextTable) -> list[tuple[int, list[str], Values]]:
    return [(row.line, row.names or row.ids, row.values) for row in read.rows]


def json_lines(*rows: dict[str, Any]) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def csv_cell(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def join(tmp_path: Path, images: dict[str, str], *keys: str, column: str = "file_name") -> Any:
    """Which image each key finds, and the problems."""
    rows = [{column: key, "paragraph": key} for key in keys]
    read = table(tmp_path, "t.jsonl", json_lines(*rows))
    joined = read.join(images, root=Path("photos"))
    found = {values["paragraph"]: id for id, values in joined.items()}
    return [found.get(key) for key in keys], read


# --- Reading ----------------------------------------------------------------------------------


def test_json_lines_keep_every_character(tmp_path: Path) -> None:
    read = table(tmp_path, "t.jsonl", json_lines(*({"id": "a", "caption": t} for t in STRANGE)))
    assert [row.values["captions"] for row in read.rows] == [[text] for text in STRANGE]
    assert [row.line for row in read.rows] == list(range(1, len(STRANGE) + 1))
    assert read.problems == []


def test_csv_keeps_every_character(tmp_path: Path) -> None:
    lines = [f"a,{csv_cell(text)}\r\n" for text in STRANGE]
    read = table(tmp_path, "t.csv", "id,caption\r\n" + "".join(lines))
    assert [row.values["captions"] for row in read.rows] == [[text] for text in STRANGE]
    assert read.problems == []


def test_tsv_with_quotes_keeps_every_character(tmp_path: Path) -> None:
    lines = [f"a\t{csv_cell(text)}\n" for text in STRANGE]
    read = table(tmp_path, "t.tsv", "id\tcaption\n" + "".join(lines))
    assert [row.values["captions"] for row in read.rows] == [[text] for text in STRANGE]
    assert read.problems == []


def test_tsv_without_quoting_takes_quotes_as_text(tmp_path: Path) -> None:
    content = 'caption\tfile\n"Hello" she said\ta.jpg\nsix 6" nails\tb.jpg\n"whole"\tc.jpg\n\n'
    read = table(tmp_path, "t.tsv", content)
    assert [row.values["captions"][0] for row in read.rows] == [
        '"Hello" she said',
        'six 6" nails',
        '"whole"',
    ]
    assert read.problems == []


@pytest.mark.parametrize("mark", [b"\xef\xbb\xbf", b""])
@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_byte_order_mark_delimiters_and_column_names(
    tmp_path: Path, mark: bytes, delimiter: str
) -> None:
    header = delimiter.join(["File_Name", " Paragraph ", "paragraph_score", "Views"])
    row = delimiter.join(["a.jpg", "é", "9", "12"])
    read = table(tmp_path, "t.csv", mark + f"{header}\n{row}\n".encode())
    assert values(read) == [(2, ["a.jpg"], {"paragraph": "é", "paragraph_score": 9})]


@pytest.mark.parametrize(
    "heading", ["File name", "FILE NAME", "file-name", "Image  ID", "Filename"]
)
def test_columns_are_known_however_people_write_them(tmp_path: Path, heading: str) -> None:
    read = table(tmp_path, "t.csv", f"{heading},Alt Text,Caption 2\na.jpg,first,second\n")
    assert values(read) == [(2, ["a.jpg"], {"captions": ["first", "second"]})]


def test_two_keys_that_are_one_column_lose_nothing_in_silence(tmp_path: Path) -> None:
    read = table(tmp_path, "t.jsonl", json_lines({"id": "a", "alt text": "b", "alt_text": "c"}))
    assert read.problems == [("texts: line 1", "it has several values called alt_text")]


def test_utf_16_with_its_mark_is_read(tmp_path: Path) -> None:
    read = table(tmp_path, "t.csv", "id,caption\na,é\n".encode("utf-16"))
    assert read.rows[0].values == {"captions": ["é"]}


def test_all_columns(tmp_path: Path) -> None:
    row = {
        "id": 7,
        "captions": ["one", "two"],
        "caption": "three",
        "alt": "four",
        "description": "d",
        "generated": ["g"],
        "negatives": ["n", "m"],
        "paragraph": "p",
        "paragraph_score": 0,
        "group": 12,
        "url": "https://example.org",
        "split": "val",
        "width": 640,
        "generated_by": None,
    }
    read = table(tmp_path, "t.jsonl", json_lines(row))
    assert values(read) == [
        (
            1,
            ["7"],
            {
                "captions": ["one", "two", "three", "four"],
                "description": "d",
                "generated": ["g"],
                "negatives": ["n", "m"],
                "paragraph": "p",
                "paragraph_score": 0,
                "group": "12",
                "url": "https://example.org",
                "split": "val",
            },
        )
    ]
    assert read.problems == []


def test_cells_may_hold_lists(tmp_path: Path) -> None:
    lists = (
        csv_cell(json.dumps(["a, b", 'c "d"'])),
        csv_cell("['a' \"b's\"]"),
        csv_cell("[sic] a dog"),
    )
    read = table(tmp_path, "t.csv", "id,captions\n" + "".join(f"x,{cell}\n" for cell in lists))
    assert [row.values["captions"] for row in read.rows] == [
        ["a, b", 'c "d"'],
        ["a", "b's"],
        ["[sic] a dog"],
    ]


def test_bad_lines_cost_themselves_alone(tmp_path: Path) -> None:
    good = '{"id": "a", "caption": "x"}'
    lines = [good, "{broken", "[1]", "", good, '"text"', '{"caption": "no key"}', "[" * 100_000]
    read = table(tmp_path, "t.jsonl", "\n".join(lines))
    assert [row.line for row in read.rows] == [1, 5]
    assert [where for where, _ in read.problems] == [
        "texts: line 2",
        "texts: line 3",
        "texts: line 6",
        "texts: line 7",
        "texts: line 8",
    ]


def test_bad_csv_rows_cost_themselves_alone(tmp_path: Path) -> None:
    content = (
        "id,caption\n"
        "a,one\n"
        'b,"he said "hi" to me"\n'
        "c,two,three\n"
        'd,"first\nsecond"\n'
        "e\n"
        'f,"never closed\n'
        "g,last\n"
    )
    read = table(tmp_path, "t.csv", content)
    assert [(row.ids[0], row.values["captions"]) for row in read.rows] == [
        ("a", ["one"]),
        ("d", ["first\nsecond"]),
        ("g", ["last"]),
    ]
    assert [where for where, _ in read.problems] == [
        "texts: line 3",
        "texts: line 4",
        "texts: line 7",
        "texts: line 8",
    ]
    assert read.problems[1][1] == "it has 3 cells, the first has 2"


def test_empty_texts_are_dropped_and_told(tmp_path: Path) -> None:
    rows = [
        {"id": "a", "captions": ["", "kept", " \n"]},
        {"id": "b", "paragraph": ""},
        {"id": "c", "caption": None},
    ]
    read = table(tmp_path, "t.jsonl", json_lines(*rows))
    assert values(read) == [(1, ["a"], {"captions": ["kept"]})]
    assert read.problems == [
        ("texts: a", "line 1: an empty text in captions"),
        ("texts: a", "line 1: an empty text in captions"),
        ("texts: b", "line 2: an empty text in paragraph"),
        ("texts: c", "line 3 has no text"),
    ]
    read = table(tmp_path, "t.csv", "id,caption,paragraph\na,,p\nb,,\n")
    assert values(read) == [(2, ["a"], {"paragraph": "p"})]
    assert read.problems == [("texts: b", "line 3 has no text")]


def test_values_of_the_wrong_kind_are_told(tmp_path: Path) -> None:
    rows = [
        {"id": "a", "captions": ["x", 7, None, {"y": "y"}]},
        {"id": "b", "paragraph": ["p", "q"], "caption": "c"},
        {"id": "c", "paragraph_score": 11, "caption": "c"},
        {"id": "d", "paragraph_score": "high", "caption": "c"},
        {"id": "e", "paragraph_score": 7.5, "split": True, "caption": "c"},
        {"id": "f", "caption": "\ud800"},
        {"id": True, "caption": "c"},
    ]
    read = table(tmp_path, "t.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    assert [row.values for row in read.rows] == [{"captions": [c]} for c in "xcccc"]
    assert len(read.problems) == 10
    assert ("texts: f", "line 6: a text that is not valid Unicode in captions") in read.problems


def test_bytes_that_are_no_text_cost_their_own_text(tmp_path: Path) -> None:
    read = table(tmp_path, "t.csv", b"id,caption\na,caf\xe9\nb,fine\n\xff,x\n")
    assert read.join({"b": "b"}) == {"b": {"captions": ["fine"]}}
    assert read.problems == [
        ("texts: a", "line 2: a text that is not valid Unicode in captions"),
        ("texts: \\udcff", "line 4 fits no image"),
    ]
    assert len(read.notes) == 1
    assert "2 rows of t.csv hold letters that are not in UTF-8: save it as UTF-8" in read.notes[0]
    assert table(tmp_path, "t.csv", "id,caption\na,café\n".encode("utf-16")).notes == []


def test_what_cannot_be_used_says_why(tmp_path: Path) -> None:
    for name, content, reason in [
        ("t.xlsx", "", "use a .csv, .tsv or .jsonl file"),
        ("t.csv", "picture,caption\n1,x\n", "no column that names the image.*picture, caption"),
        ("t.csv", "id,words\n1,x\n", "no column that holds text.*id, words"),
        ("t.csv", "", "no column that names the image"),
        ("t.jsonl", "\n", "holds no rows"),
        ("t.csv", "id,caption\n", "holds no rows"),
    ]:
        with pytest.raises(UsageError, match=reason):
            table(tmp_path, name, content)
    with pytest.raises(UsageError, match="No such file"):
        read_texts(tmp_path / "absent.csv")


# --- Joining ----------------------------------------------------------------------------------


def same(*paths: str) -> dict[str, str]:
    return {path: path for path in paths}


def test_keys_find_images_by_path_end_or_stem(tmp_path: Path) -> None:
    images = same("a/x.jpg", "b/x.jpg", "b/y.png", "22.05.png", "50% off #1.jpg", "a'b (c).jpg")
    for key, expected in [
        ("a/x.jpg", "a/x.jpg"),
        ("b/x", "b/x.jpg"),
        ("y.png", "b/y.png"),
        ("y", "b/y.png"),
        ("22.05", "22.05.png"),
        ("50% off #1.jpg", "50% off #1.jpg"),
        ("a'b (c)", "a'b (c).jpg"),
    ]:
        found, read = join(tmp_path, images, key)
        assert (found, read.problems) == ([expected], []), key


def test_roots_and_backslashes_in_front_do_no_harm(tmp_path: Path) -> None:
    images = same("a/x.jpg", "x.jpg")
    for key, expected in [
        ("photos/a/x.jpg", "a/x.jpg"),
        ("/home/me/photos/x.jpg", "x.jpg"),
        ("/photos/old/photos/a/x.jpg", "a/x.jpg"),
        ("a\\x.jpg", "a/x.jpg"),
        ("./x.jpg", "x.jpg"),
    ]:
        found, _ = join(tmp_path, images, key)
        assert found == [expected], key


def test_a_key_of_a_lost_file_never_falls_to_another(tmp_path: Path) -> None:
    images = same("b/x.jpg", "y.png", "IMG.JPG")
    lost = ["a/x.jpg", "photos/x.jpg", "y.jpg", "gone/y.png", "x"]
    found, read = join(tmp_path, images, *lost)
    assert found == [None, None, None, None, "b/x.jpg"]
    assert read.problems[0] == ("texts: a/x.jpg", "line 1 fits no image")
    assert len(read.problems) == 4
    assert join(tmp_path, images, "img.jpg", "B/X.jpg")[0] == ["IMG.JPG", "b/x.jpg"]


def test_ambiguous_keys_are_named(tmp_path: Path) -> None:
    images = same("a/x.jpg", "b/x.jpg", "p.jpg", "p.png")
    found, read = join(tmp_path, images, "x.jpg", "p")
    assert found == [None, None]
    assert read.problems == [
        ("texts: x.jpg", "line 1 fits 2 images: a/x.jpg, b/x.jpg"),
        ("texts: p", "line 2 fits 2 images: p.jpg, p.png"),
    ]


def test_extension_and_case_tell_images_apart(tmp_path: Path) -> None:
    images = same("a.jpg", "a.png", "A.jpg", "a.JPG")
    assert join(tmp_path, images, *images)[0] == list(images)


def test_unicode_forms_are_equal_only_where_nothing_fits_exactly(tmp_path: Path) -> None:
    composed, decomposed = "na\u00efve.jpg", "nai\u0308ve.jpg"
    assert join(tmp_path, same(decomposed), composed)[0] == [decomposed]
    assert join(tmp_path, same(composed), decomposed)[0] == [composed]
    assert join(tmp_path, same(composed, decomposed), decomposed, composed)[0] == [
        decomposed,
        composed,
    ]


def test_numbers_and_leading_zeros(tmp_path: Path) -> None:
    found, read = join(tmp_path, same("000123.jpg", "123.jpg"), "000123", "123", column="id")
    assert found == ["000123.jpg", "123.jpg"]
    assert read.notes == []
    found, read = join(tmp_path, same("000000000123.jpg"), "123", column="image_id")
    assert found == ["000000000123.jpg"]
    assert read.notes == ["1 rows of t.jsonl were joined by number alone, leading zeros aside"]
    assert join(tmp_path, same("0123.jpg", "00123.jpg"), "123", column="id")[0] == [None]
    assert join(tmp_path, {"397133": "000000397133.jpg"}, "397133", column="id")[0] == ["397133"]


def test_a_row_number_called_id_joins_nothing(tmp_path: Path) -> None:
    rows = [
        {"id": 1, "file_name": "b.jpg", "paragraph": "of b"},
        {"id": 2, "file_name": "gone.jpg", "paragraph": "of gone"},
    ]
    read = table(tmp_path, "t.jsonl", json_lines(*rows))
    joined = read.join(same("1.jpg", "2.jpg", "b.jpg"))
    assert joined == {"b.jpg": {"paragraph": "of b"}}
    assert read.problems == [("texts: gone.jpg", "line 2 fits no image")]
    exact = table(tmp_path, "t.jsonl", json_lines({"id": 5, "file_name": "?", "paragraph": "p"}))
    assert exact.join({"5": "five.jpg"}) == {"5": {"paragraph": "p"}}


def test_rows_of_one_image_are_gathered(tmp_path: Path) -> None:
    rows = [
        {"id": "a", "caption": "one", "paragraph": "p", "split": "val"},
        {"id": "a", "caption": "two", "paragraph": "q", "split": "val"},
        {"id": "a", "captions": ["one", "three"]},
    ]
    read = table(tmp_path, "t.jsonl", json_lines(*rows))
    assert read.join({"a": "a.jpg"}) == {
        "a": {"captions": ["one", "two", "one", "three"], "paragraph": "p", "split": "val"}
    }
    assert read.problems == [("texts: a", "line 2 has another paragraph than a line before")]


def test_what_is_shown_is_valid() -> None:
    assert shown("naïve") == "naïve"
    assert shown("a\udcff") == "a\\udcff"
    assert text_problem("a\udcff") == "a text that is not valid Unicode"


def test_the_first_caption_is_the_first_in_the_file(tmp_path: Path) -> None:
    read = table(tmp_path, "t.csv", "file_name,alt,caption\na.jpg,first,second\n")
    assert read.join({"a": "a.jpg"}) == {"a": {"captions": ["first", "second"]}}


def test_a_column_twice_is_refused_since_one_would_be_lost(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="several columns called caption"):
        table(tmp_path, "t.csv", "file_name,caption,Caption\na.jpg,b,c\n")
