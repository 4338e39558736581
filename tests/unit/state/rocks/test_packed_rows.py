"""PackedRows: what Arrow columns hold comes back from bytes to the bit, of every type that state can have."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from onceflow.runtime.state.rocks import packed_rows
from onceflow.runtime.state.rocks.packed_rows import PackedRows, _text
from onceflow.runtime.testing.mutation import Mutant, mutated

WORDS = [
    (pa.int64(), st.integers(-(1 << 63), (1 << 63) - 1)),
    (pa.uint8(), st.integers(0, 255)),
    (pa.float64(), st.floats(allow_nan=False)),
    (pa.float32(), st.floats(allow_nan=False, width=32)),
    (pa.bool_(), st.booleans()),
    (pa.date32(), st.dates()),
    (pa.time64("us"), st.times()),
    (pa.timestamp("us"), st.datetimes()),
    (pa.decimal128(20, 3), st.integers(-(10**19), 10**19).map(lambda n: Decimal(n).scaleb(-3))),
]
TEXTS = [
    (pa.string(), st.text(max_size=5)),
    (pa.large_string(), st.text(max_size=5)),
    (pa.binary(), st.binary(max_size=5)),
    (pa.large_binary(), st.binary(max_size=5)),
]
ENTRY = st.tuples(st.text(max_size=2), st.integers(0, 9))
OTHERS = [
    (pa.null(), st.none()),
    (pa.binary(3), st.binary(min_size=3, max_size=3)),
    (pa.list_(pa.string()), st.lists(st.none() | st.text(max_size=2), max_size=3)),
    (pa.map_(pa.string(), pa.int8()), st.lists(ENTRY, max_size=2)),
    (pa.struct([]), st.just({})),
]


def structs(fields: st.SearchStrategy[tuple[pa.DataType, Any]]) -> st.SearchStrategy[tuple[pa.DataType, Any]]:
    return st.lists(fields, min_size=1, max_size=3).map(
        lambda some: (
            pa.struct([(f"f{n}", of) for n, (of, _) in enumerate(some)]),
            st.fixed_dictionaries({f"f{n}": st.none() | values for n, (_, values) in enumerate(some)}),
        )
    )


COLUMN = st.recursive(st.sampled_from(WORDS + TEXTS + OTHERS), structs, max_leaves=5)


@st.composite
def tables(draw: st.DrawFn) -> list[pa.Array]:
    """Columns of the same length, some of them slices of longer ones."""
    count, before = draw(st.integers(0, 12)), draw(st.integers(0, 9))
    columns = []
    for of, values in draw(st.lists(COLUMN, min_size=1, max_size=4)):
        items = draw(st.lists(st.none() | values, min_size=count + before, max_size=count + before))
        columns.append(pa.array(items, of).slice(before))
    return columns


def packed_and_back(columns: list[pa.Array]) -> None:
    packed = PackedRows(7, [column.type for column in columns])
    rows = packed.pack(columns)
    assert all(type(row) is bytes and row[:2] == b"\x07\x00" for row in rows)
    back = packed.unpack(rows)
    for column, found in zip(columns, back, strict=True):
        found.validate(full=True)
        assert found.type == column.type
        assert found.equals(column)
    for place in range(len(rows))[::3]:  # each row is by itself
        [*one] = packed.unpack([rows[place]])
        assert [found.to_pylist() for found in one] == [c.slice(place, 1).to_pylist() for c in columns]


NULL_BETWEEN_TEXTS = [pa.array(["a", None, "ü"]), pa.array([b"", b"x", None]), pa.array([1, None, 3])]


@example(NULL_BETWEEN_TEXTS)
@given(tables())
def test_columns_come_back(columns: list[pa.Array]) -> None:
    packed_and_back(columns)


def test_a_field_that_is_never_null_is_in_a_struct_that_is() -> None:
    day = pa.struct([pa.field("day", pa.date32(), nullable=False)])
    packed_and_back([pa.array([{"day": dt.date(2020, 1, 1)}, None], day)])


def test_a_text_that_is_null_may_have_bytes_in_arrow() -> None:
    validity = pa.array([True, False, True]).buffers()[1]
    texts = pa.array(["ab", "cd", "e"])
    packed_and_back([pa.Array.from_buffers(pa.string(), 3, [validity, *texts.buffers()[1:]])])


def test_the_bits_of_a_nan_come_back() -> None:
    bits = pa.array([0x7FC00001, None, -(1 << 31)], pa.int32())
    packed = PackedRows(0, [pa.float32()])
    [back] = packed.unpack(packed.pack([bits.view(pa.float32())]))
    assert back.view(pa.int32()).equals(bits)


def _as_in_the_first_row(begins: Any, ends: Any, *others: Any) -> pa.Array:
    return _text(begins, begins + (ends - begins)[0], *others)


MUTANTS = [
    Mutant("no bit says what is null", [(packed_rows, "null_mask", lambda array: None)]),
    Mutant("nulls are forgotten on the way back", [(packed_rows, "_validity", lambda is_null: None)]),
    Mutant("texts are cut where those of the first row are", [(packed_rows, "_text", _as_in_the_first_row)]),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.title)
def test_mutants_are_noticed(mutant: Mutant) -> None:
    with mutated(mutant), pytest.raises((AssertionError, pa.ArrowInvalid)):
        packed_and_back(NULL_BETWEEN_TEXTS)
