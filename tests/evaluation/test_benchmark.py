"""Who belongs to whom in a benchmark."""

from paragrain.collection import Record
from paragrain.evaluation.benchmark import groups_of


def test_equal_groups_and_equal_images_share_a_number():
    records = [
        Record(id="a", group="x"),
        Record(id="b", content="same"),
        Record(id="x"),
        Record(id="c", group="x", content="same"),
        Record(id="d", content="same"),
    ]
    contents = ["1", "same", "2", "same", "same"]
    assert groups_of(records, contents).tolist() == [0, 0, 1, 0, 0]
