"""Every element comes out of a frame as it went in, whatever its rows are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceflow.runtime.exchange.frames import END_OF_INPUT, HEADER, RECORDS, FrameCodec
from onceflow.runtime.records import (
    WATERMARK_MAX_MS,
    WATERMARK_MIN_MS,
    Barrier,
    Element,
    EndOfInput,
    Idle,
    Origin,
    Records,
    Watermark,
)

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("name", pa.string()),
        pa.field("raw", pa.binary()),
        pa.field("share", pa.float64()),
        pa.field("tags", pa.list_(pa.string())),
        pa.field("inner", pa.struct([("a", pa.int32()), ("b", pa.string())])),
        pa.field("is_ok", pa.bool_()),
        pa.field("at", pa.timestamp("us", tz="UTC")),
    ]
)
SIDES = [(event_time, key_hash, origin) for event_time in (0, 1) for key_hash in (0, 1) for origin in (0, 1)]

ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "id": st.integers(-(1 << 63), (1 << 63) - 1),
            "name": st.none() | st.text(max_size=8),
            "raw": st.none() | st.binary(max_size=8),
            "share": st.none() | st.floats(allow_nan=False),
            "tags": st.none() | st.lists(st.none() | st.text(max_size=3), max_size=3),
            "inner": st.none() | st.fixed_dictionaries({"a": st.none() | st.integers(-9, 9), "b": st.none()}),
            "is_ok": st.none() | st.booleans(),
            "at": st.none(),
        }
    ),
    max_size=12,
)


def codec(sides: tuple[int, int, int], schema: pa.Schema = SCHEMA) -> FrameCodec:
    event_time, key_hash, origin = map(bool, sides)
    return FrameCodec(schema, has_event_time=event_time, has_key_hash=key_hash, with_origin=origin)


def records(batch: pa.RecordBatch, sides: tuple[int, int, int]) -> Records:
    count = batch.num_rows
    numbers = np.arange(count)
    return Records(
        batch,
        numbers.astype(np.int64) * 7 if sides[0] else None,
        numbers.astype(np.uint64) + np.uint64(1 << 63) if sides[1] else None,
        Origin(("topic-0", 'tö"pic-13'), (numbers % 2).astype(np.uint16), numbers.astype(np.int64) + 99)
        if sides[2]
        else None,
    )


def over_the_wire(codec: FrameCodec, element: Element) -> Element:
    """The element after a frame was taken apart as RemoteInput does it: body in place, behind the meta part,
    in one buffer."""
    frame = b"".join(codec.encode(element))
    kind, meta_length, body_length = HEADER.unpack(frame[: HEADER.size])
    content = bytearray(frame[HEADER.size :])
    assert len(content) == meta_length + body_length
    view = memoryview(content)
    return codec.decode(kind, bytes(view[:meta_length]), view[meta_length:])


def assert_same(found: Element, sent: Records) -> None:
    assert isinstance(found, Records)
    found.batch.validate(full=True)
    assert found.batch.equals(sent.batch, check_metadata=False)
    assert found.batch.schema == sent.batch.schema
    for ours, theirs in ((found.event_time, sent.event_time), (found.key_hash, sent.key_hash)):
        assert (ours is None) == (theirs is None)
        if ours is not None and theirs is not None:
            assert ours.dtype == theirs.dtype
            np.testing.assert_array_equal(ours, theirs)
    assert (found.origin is None) == (sent.origin is None)
    if found.origin is not None and sent.origin is not None:
        assert found.origin.splits == sent.origin.splits
        assert [found.origin.describe(row) for row in range(len(sent))] == [
            sent.origin.describe(row) for row in range(len(sent))
        ]


@given(rows=ROWS, sides=st.sampled_from(SIDES))
def test_records_come_out_as_they_went_in(rows: list[dict[str, Any]], sides: tuple[int, int, int]) -> None:
    sent = records(pa.RecordBatch.from_pylist(rows, schema=SCHEMA), sides)
    assert_same(over_the_wire(codec(sides), sent), sent)


@given(rows=ROWS, sides=st.sampled_from(SIDES), data=st.data())
def test_a_slice_sends_its_rows_only(
    rows: list[dict[str, Any]], sides: tuple[int, int, int], data: st.DataObject
) -> None:
    """The partitioner sends slices of one batch: offsets of buffers must not get lost on the way."""
    whole = records(pa.RecordBatch.from_pylist(rows, schema=SCHEMA), sides)
    start = data.draw(st.integers(0, len(rows)))
    length = data.draw(st.integers(0, len(rows) - start))
    part = whole.slice(start, length)
    assert_same(over_the_wire(codec(sides), part), part)


@pytest.mark.parametrize("sides", SIDES)
@pytest.mark.parametrize("rows", [0, 1, 3])
def test_columns_of_nulls_and_rows_without_columns(sides: tuple[int, int, int], rows: int) -> None:
    nulls = pa.schema([("a", pa.string()), ("b", pa.list_(pa.int64())), ("c", pa.null())])
    sent = records(pa.RecordBatch.from_arrays([pa.nulls(rows, f.type) for f in nulls], schema=nulls), sides)
    assert_same(over_the_wire(codec(sides, nulls), sent), sent)


@pytest.mark.parametrize(
    "element",
    [
        Watermark(0),
        Watermark(WATERMARK_MIN_MS),
        Watermark(WATERMARK_MAX_MS),
        Idle(),
        Barrier(1),
        Barrier((1 << 63) - 1, is_last=True),
        EndOfInput(),
    ],
)
def test_control_elements_come_out_as_they_went_in(element: Element) -> None:
    assert over_the_wire(codec((1, 1, 1)), element) == element


@pytest.mark.parametrize("splits", [("t-0",), ("events-0", "events-1"), ("a" * 61,)])
def test_regression_columns_behind_an_origin_are_aligned(splits: tuple[str, ...]) -> None:
    """The names of splits, of any length, stood right before the columns, which were then read unaligned."""
    count = 100
    origin = Origin(splits, np.zeros(count, np.uint16), np.arange(count))
    batch = pa.record_batch({"x": pa.array(range(count), pa.int64())})
    found = over_the_wire(
        codec((1, 1, 1), batch.schema),
        Records(batch, np.arange(count), np.arange(count, dtype=np.uint64), origin),
    )
    assert isinstance(found, Records)
    assert found.event_time is not None
    assert found.event_time.flags.aligned
    assert found.batch.column(0).buffers()[1].address % 8 == 0


def test_a_frame_of_another_version_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown kind 77"):
        codec((0, 0, 0)).decode(77, b"", memoryview(b""))


def test_kinds_are_pinned() -> None:
    """Both ends of a job run the same version; this test is for who reads a capture."""
    assert (RECORDS, END_OF_INPUT, HEADER.size) == (1, 5, 16)
