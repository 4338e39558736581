"""Types become as tight as the values allow, at every depth."""

from __future__ import annotations

import pyarrow as pa
import pytest

from onceflow.runtime.state.description import type_text
from onceflow.runtime.state_tables.tight_types import tight, usual_type

INNER = pa.struct([("n", pa.int64()), ("note", pa.string())])
CASES = [
    ([1, None], pa.int64(), "int64"),
    ([{"n": 1, "note": None}, None], INNER, "struct<n: int64 not null, note: string>"),
    ([[1, 2], None, []], pa.list_(pa.int64()), "list<int64 not null>"),
    ([[1, None], [3]], pa.list_(pa.int64()), "list<int64>"),
    (
        [[{"n": 1, "note": "a"}]],
        pa.list_(INNER),
        "list<struct<n: int64 not null, note: string not null> not null>",
    ),
    ([[[1], [2, 3]], [[]]], pa.large_list(pa.list_(pa.int8())), "list<list<int8 not null> not null>"),
]


@pytest.mark.parametrize(("values", "of", "expected"), CASES)
def test_a_type_that_is_as_tight_as_its_values(values: list[object], of: pa.DataType, expected: str) -> None:
    array = tight(pa.array([*values, *values], of).slice(1, len(values)))
    array.validate(full=True)
    assert type_text(array.type) == expected
    assert array.to_pylist() == [*values, *values][1 : 1 + len(values)]


def test_what_only_a_library_prefers_is_made_usual() -> None:
    of = pa.struct(
        [("a", pa.large_list(pa.large_string())), ("b", pa.dictionary(pa.int8(), pa.string_view()))]
    )
    assert type_text(usual_type(of)) == "struct<a: list<string>, b: string>"
    assert usual_type(pa.large_binary()) == pa.binary()
