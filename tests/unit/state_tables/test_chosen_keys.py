"""Keys as users write them: which rows they choose, and what is refused."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from onceflow.runtime.errors import UsageError
from onceflow.runtime.state_tables.chosen_keys import ChosenKeys, key_of_text

COLUMNS = pa.schema([("user", pa.string()), ("day", pa.date32())])


def test_keys_of_several_columns() -> None:
    days = pa.array(["2026-01-01", "2026-01-02"]).cast(pa.date32())
    rows = pa.RecordBatch.from_arrays([pa.array(["ann", "ann"]), days], schema=COLUMNS)
    chosen = ChosenKeys([{"day": "2026-01-02", "user": "ann"}], COLUMNS, 128, "it")
    assert chosen.of(rows).tolist() == [False, True]
    assert len(chosen.key_groups) == 1


def test_numbers_are_the_same_in_any_width_and_as_text() -> None:
    rows = pa.RecordBatch.from_pydict({"n": pa.array([5, 6, None], pa.int64())})
    columns = pa.schema([("n", pa.int32())])
    assert ChosenKeys(["5", None], columns, 128, "it").of(rows).tolist() == [True, False, True]
    assert ChosenKeys([], columns, 128, "it").of(rows).tolist() == [False] * 3


def test_a_text_is_a_key() -> None:
    assert key_of_text("ann", ["user"]) == "ann"
    assert key_of_text("{odd", ["user"]) == "{odd"
    assert key_of_text('{"user": "{odd"}', ["user"]) == {"user": "{odd"}
    assert key_of_text('{"user": "ann", "day": 3}', ["user", "day"]) == {"user": "ann", "day": 3}
    with pytest.raises(UsageError, match="has to be a JSON object with user, day: write it so"):
        key_of_text("ann", ["user", "day"])


REFUSED: list[tuple[Any, str]] = [
    ("ann", "a key of it has the columns user, day: give a dictionary of them"),
    ({"user": "ann", "dy": 1}, r"a key of it has no column 'dy' \(did you mean 'day'\?\)"),
    ({"user": "ann"}, "a key of it needs day too: give a value for each column"),
    ({"user": "ann", "day": "noon"}, r"'noon' is no date32\[day\], as the key column 'day' of it is: give"),
]


@pytest.mark.parametrize(("key", "sentence"), REFUSED)
def test_what_is_no_key_is_refused(key: Any, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        ChosenKeys([key], COLUMNS, 128, "it")
