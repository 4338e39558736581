"""JSON from flat rows by the kernel, against its slow twin: what polars writes without kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

pytest.importorskip("numba")

from onceflow.connectors.formats.format import NotFlatError
from onceflow.connectors.formats.json.compiled.encode import FlatEncoder
from onceflow.connectors.formats.json.encode import JsonEncoder
from onceflow.runtime.arrays.recycled_memory import NewMemory, RecycledMemory
from tests.unit.guarded_memory import array_of, before_closed_page

LOWEST, HIGHEST = -(1 << 63), (1 << 63) - 1
NAMES = ["user", "a b", "x'~", "n1", "{", "ok"]
SCHEMA = pa.schema(
    [
        pa.field("user", pa.string()),
        pa.field("a b", pa.large_string()),
        pa.field("x'~", pa.int64()),
        pa.field("n1", pa.int8()),
        pa.field("{", pa.uint32()),
        pa.field("ok", pa.bool_()),
    ]
)
plain = st.text(
    st.characters(exclude_characters='"\\', exclude_categories=["Cs"], min_codepoint=0x20), max_size=40
)
edges = [sign * 10**power - less for power in range(19) for sign in (-1, 1) for less in (0, 1)]
numbers = st.integers(LOWEST + 1, HIGHEST) | st.sampled_from([*edges, HIGHEST, LOWEST + 1])


few = st.sampled_from([0, -7, HIGHEST, 12345678901])


def rows(text: st.SearchStrategy[str], number: st.SearchStrategy[int]) -> st.SearchStrategy[list[Any]]:
    columns = (text, text, number, st.integers(-128, 127), st.integers(0, (1 << 32) - 1), st.booleans())
    return st.lists(st.tuples(*(st.none() | column for column in columns)), min_size=1, max_size=8)


def batch(rows: list[Any]) -> pa.RecordBatch:
    columns = [
        pa.array(values, field.type) for values, field in zip(zip(*rows, strict=True), SCHEMA, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def encoded(schema: pa.Schema, batch: pa.RecordBatch) -> pa.Array | None:
    return FlatEncoder(schema).encode(batch, None, NewMemory())


def by_polars(batch: pa.RecordBatch) -> list[bytes]:
    frame = pl.DataFrame(pl.from_arrow(batch)).select(pl.struct(pl.all()).struct.json_encode().alias("v"))
    return [value.encode() for value in frame.to_series().to_list()]


@given(rows(plain, numbers) | rows(plain, few), st.data())
@example([("\x7f\u2028é😀", "", HIGHEST, -128, (1 << 32) - 1, True), (None,) * 6], None)
def test_the_kernel_writes_what_polars_writes(given: list[Any], data: st.DataObject | None) -> None:
    whole = batch(given)
    start = 0 if data is None else data.draw(st.integers(0, len(given) - 1))
    part = whole.slice(start, len(given) if data is None else data.draw(st.integers(1, len(given) - start)))
    written = encoded(SCHEMA, part)
    assert written is not None, "nothing in it needs polars"
    written.validate(full=True)
    assert written.type == pa.large_binary()
    assert written.to_pylist() == by_polars(part)


@given(rows(plain, numbers) | rows(plain, few), st.data())
def test_rows_in_another_order_and_one_batch_behind_the_other_in_memory(
    given: list[Any], data: st.DataObject
) -> None:
    part = batch(given).slice(data.draw(st.integers(0, len(given) - 1)))
    order = data.draw(st.permutations(range(part.num_rows)))[: data.draw(st.integers(1, part.num_rows))]
    memory, encoder = RecycledMemory(), FlatEncoder(SCHEMA)
    before = encoder.encode(part, None, memory)
    written = encoder.encode(part, np.array(order), memory)
    assert before is not None
    assert written is not None
    written.validate(full=True)
    expected = by_polars(part)
    assert written.to_pylist() == [expected[row] for row in order]
    assert before.to_pylist() == expected, "it lies before it"


@given(rows(st.text(st.characters(exclude_categories=["Cs"]), max_size=4), numbers | st.just(LOWEST)))
def test_with_escapes_and_the_lowest_integer_the_encoder_writes_the_same(given: list[Any]) -> None:
    whole = batch(given)
    assert JsonEncoder(SCHEMA).encode(whole).to_pylist() == by_polars(whole)


def test_every_number_of_digits() -> None:
    near = [n + d for n in [*edges, HIGHEST, 1 << 62, 10**8 + 99, 10**16 + 7] for d in (-1, 0, 1)]
    steps = range(-HIGHEST, HIGHEST, HIGHEST // 9_973)
    values = [*range(-1_000, 100_000), *(n for n in near if abs(n) <= HIGHEST), *steps]
    written = encoded(pa.schema({"n": pa.int64()}), pa.record_batch({"n": values}))
    assert written is not None
    assert written.to_pylist() == [b'{"n":%d}' % n for n in values]


def test_nothing_of_the_batch_before_is_needed() -> None:
    memory, encoder = RecycledMemory(), FlatEncoder(pa.schema({"n": pa.int64()}))
    for _ in range(3):
        written = encoder.encode(pa.record_batch({"n": [12345, 1, 12345]}), None, memory)
        assert written is not None
        assert written.to_pylist() == [b'{"n":12345}', b'{"n":1}', b'{"n":12345}']
        del written
        memory.reserve(1000)[:] = 0xFF


def test_what_all_rows_share_and_what_only_some_do() -> None:
    values = [7, -12345678901, 7]
    for step in (0, 1, -1):
        for at in range(len(values)):
            some = [values[0]] * 3 if step == 0 else [*values[:at], values[0], *values[at + 1 :]]
            for nulls in (False, True):
                column = pa.array([None if nulls and i == at else v for i, v in enumerate(some)], pa.int64())
                flags = pa.array([v == values[0] for v in some])
                rows = pa.record_batch({"a" * 40: column, "b": flags, "c": column, "d": ["x", "", "yy"]})
                written = encoded(rows.schema, rows)
                assert written is not None
                assert written.to_pylist() == by_polars(rows)


def test_texts_and_names_of_any_length() -> None:
    lengths = [*range(70), 31, 32, 33, 0, 1, 500]
    for name in ("n" * length for length in (1, 27, 28, 29, 300)):  # about a block
        texts = ["".join(chr(97 + (i + n) % 26) for i in range(n)) for n in lengths]
        written = encoded(pa.schema({name: pa.string()}), pa.record_batch({name: texts}))
        assert written is not None
        assert written.to_pylist() == [f'{{"{name}":"{text}"}}'.encode() for text in texts]


def test_nothing_is_read_behind_the_end_of_the_memory() -> None:
    with before_closed_page() as put:
        for length in (1, 11, 31, 32, 33, 70):
            texts = [b"x" * length] * 5
            column = array_of(texts, put(b"".join(texts)), pa.string())
            written = encoded(pa.schema({"u": pa.string()}), pa.record_batch({"u": column}))
            assert written is not None
            assert written.to_pylist() == [b'{"u":"%s"}' % text for text in texts]


@pytest.mark.parametrize("text", ['"', "\\", "\n", "\x00", "\x1f"])
def test_text_with_escapes_is_left_to_polars(text: str) -> None:
    row: list[Any] = [("a", "b", 1, 2, 3, True), ("a", f"b{text}", 1, 2, 3, True)]
    assert encoded(SCHEMA, batch(row)) is None
    assert encoded(SCHEMA, batch(row).slice(0, 1)) is not None


def test_the_lowest_integer_is_left_to_polars() -> None:
    one, other = ("a", "b", LOWEST, 2, 3, True), ("a", "b", 7, 2, 3, True)
    for some in ([one, other], [other, one], [one, (None,) * 6]):
        assert encoded(SCHEMA, batch(some)) is None
    all_the_same = encoded(SCHEMA, batch([one, one]))
    assert all_the_same is not None, "it is not the kernel that writes it"
    assert all_the_same.to_pylist() == by_polars(batch([one, one]))


def test_a_batch_without_rows_or_with_other_types_is_left_to_polars() -> None:
    one = batch([("a", "b", 1, 2, 3, True)])
    assert encoded(SCHEMA, one.slice(0, 0)) is None
    assert encoded(SCHEMA, one.set_column(3, pa.field("n1", pa.int64()), pa.array([2]))) is None
    assert JsonEncoder(SCHEMA).encode(one.slice(0, 0)).to_pylist() == []


@pytest.mark.parametrize(
    "field",
    [
        pa.field("ratio", pa.float64()),
        pa.field("big", pa.uint64()),
        pa.field("parts", pa.list_(pa.int64())),
        pa.field('quo"te', pa.int64()),
        pa.field("back\\slash", pa.int64()),
        pa.field("ümlaut", pa.int64()),
    ],
)
def test_what_the_kernel_has_no_code_for(field: pa.Field) -> None:
    with pytest.raises(NotFlatError):
        FlatEncoder(pa.schema([field]))
