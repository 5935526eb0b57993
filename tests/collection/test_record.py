"""A record tells its texts."""

import pytest

from paragrain.collection import TEXT_FIELDS, Record
from paragrain.errors import UsageError


def test_texts_of_a_record_by_field() -> None:
    record = Record("1", captions=["a", "b"], paragraph="p")
    assert [record.texts(field) for field in TEXT_FIELDS] == [["a", "b"], [], [], [], ["p"]]
    with pytest.raises(UsageError, match="choose from captions, description, generated"):
        record.texts("split")
