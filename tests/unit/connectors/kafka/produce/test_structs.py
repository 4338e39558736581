"""The structs that librdkafka is given say what the rows say, whatever the rows are."""

from __future__ import annotations

import ctypes
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from onceflow.connectors.kafka.client import PRODUCE_SCHEMA
from onceflow.connectors.kafka.produce.structs import (
    ARGUMENT,
    MessageArray,
    arguments_of,
    is_plain,
    runs,
    sorted_by_partition,
)

BYTES = st.none() | st.binary(max_size=5)
HEADER = st.fixed_dictionaries({"key": st.text("ab\u00fc", max_size=3), "value": BYTES})
ROW = st.fixed_dictionaries(
    {
        "topic": st.sampled_from(["one", "two", "drei\u00fc"]),
        "partition": st.integers(-1, 3),
        "key": BYTES,
        "value": BYTES,
        "headers": st.none() | st.lists(HEADER, max_size=3),
        "timestamp": st.none() | st.integers(0, 1 << 60),
    }
)


@st.composite
def batches(draw: st.DrawFn) -> pa.RecordBatch:
    """Batches, slices of longer ones among them, whose buffers start before them."""
    rows = pa.RecordBatch.from_pylist(draw(st.lists(ROW, max_size=12)), PRODUCE_SCHEMA)
    start = draw(st.integers(0, len(rows)))
    return rows.slice(start, draw(st.integers(0, len(rows) - start)))


def content(pointer: int, size: int) -> bytes | None:
    return None if pointer == 0 else ctypes.string_at(int(pointer), int(size))


@settings(max_examples=50)
@given(st.lists(batches(), min_size=1, max_size=3))
def test_messages_point_to_the_keys_and_values(found: list[pa.RecordBatch]) -> None:
    array = MessageArray()  # used again and again: what was there before must be gone
    for rows in found:
        messages = array.fill(rows)
        assert [content(m["payload"], m["len"]) for m in messages] == rows["value"].to_pylist()
        assert [content(m["key"], m["key_len"]) for m in messages] == rows["key"].to_pylist()
        assert not messages["_private"].any()


@settings(max_examples=50)
@given(batches())
def test_arguments_say_all_of_a_row(rows: pa.RecordBatch) -> None:
    arguments = arguments_of(rows)
    for row, address, count in zip(rows.to_pylist(), arguments.addresses, arguments.counts, strict=True):
        raw = (ctypes.c_char * (count * ARGUMENT.itemsize)).from_address(address)
        said = np.frombuffer(raw, ARGUMENT)
        assert [int(kind) for kind in said["kind"]] == [1, 3, 7, 5, 4, 8] + [9] * (count - 6)
        topic, partition, flags, key, value, timestamp, *headers = said.tolist()
        found: dict[str, Any] = {
            "topic": ctypes.string_at(topic[1]).decode(),
            "partition": ctypes.c_int32(partition[1]).value,
            "key": content(*key[1:3]),
            "value": content(*value[1:3]),
            "headers": [
                {"key": ctypes.string_at(name).decode(), "value": content(at, size)}
                for _, name, at, size in headers
            ],
            "timestamp": timestamp[1],
        }
        assert found == {**row, "headers": row["headers"] or [], "timestamp": row["timestamp"] or 0}
        assert flags[1] == 2  # a copy: the rows may go


@settings(max_examples=50)
@given(batches())
def test_runs_cover_each_row_once_in_order(rows: pa.RecordBatch) -> None:
    places = [(row["topic"], row["partition"]) for row in rows.to_pylist()]
    pieces = runs(rows)
    assert [n for run in pieces for n in range(run.start, run.stop)] == list(range(len(rows)))
    assert all(set(places[run.start : run.stop]) == {(run.topic, run.partition)} for run in pieces)
    assert all(a.topic != b.topic or a.partition != b.partition for a, b in pairwise(pieces))


@settings(max_examples=50)
@given(batches())
def test_sorted_rows_keep_their_order_within_a_partition(rows: pa.RecordBatch) -> None:
    before, after = rows.to_pylist(), sorted_by_partition(rows)
    assert len(runs(after)) == len({(row["topic"], row["partition"]) for row in before})
    for place in {(row["topic"], row["partition"]) for row in before}:
        of_place = [row for row in before if (row["topic"], row["partition"]) == place]
        assert [r for r in after.to_pylist() if (r["topic"], r["partition"]) == place] == of_place


def test_only_rows_without_headers_and_timestamps_are_plain() -> None:
    row: dict[str, Any] = {"topic": "t", "partition": 0, "value": b"v"}
    rows = [row, {**row, "headers": []}, {**row, "timestamp": 0}]
    assert [is_plain(pa.RecordBatch.from_pylist([row, r], PRODUCE_SCHEMA)) for r in rows] == [
        True,
        False,
        False,
    ]
