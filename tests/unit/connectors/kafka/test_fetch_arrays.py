"""The bulk fetcher's messages read without kernels, over messages made here instead of by librdkafka."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceflow.connectors.kafka.fetch import HEADERS_TYPE
from onceflow.connectors.kafka.fetch_arrays import ArrayBatch
from onceflow.connectors.kafka.fetch_batch import headers_of
from onceflow.connectors.kafka.librdkafka_library import CMessage, UnsupportedLibraryError, load_library

VALUE, KEY = CMessage.payload.offset, CMessage.key.offset


@dataclass(frozen=True)
class Made:
    """What a message is made of; `error` is a code of librdkafka's or 0."""

    value: bytes | None
    key: bytes | None = None
    topic: int = 0x1000
    partition: int = 0
    offset: int = 0
    error: int = 0


@dataclass
class Heap:
    """Stands for librdkafka: has the messages' memory, and takes them back."""

    in_bulk: bool
    destroyed: list[int] = field(default_factory=list)

    def destroys_in_bulk(self) -> bool:
        return self.in_bulk

    def destroy_messages(self, addresses: Any) -> None:
        self.destroyed += addresses.tolist()

    def rd_kafka_message_destroy(self, address: int) -> None:
        self.destroyed.append(address)

    def rd_kafka_message_timestamp(self, address: int, kind: int) -> int:
        offset = CMessage.from_address(address).offset
        ctypes.c_int.from_address(kind).value = 1 if offset else 0
        return offset - 1


def memory_of(messages: list[Made], gap: int, backwards: bool) -> tuple[list[int], Any]:
    """Structs anywhere; values and keys in one buffer, so far apart, upwards or downwards. What is in the
    gaps must never come out."""
    parts = [part for m in messages for part in (m.value, m.key)]
    order = range(len(parts) - 1, -1, -1) if backwards else range(len(parts))
    content, places = bytearray(), {}
    for i in order:
        content += b"#" * gap
        places[i] = len(content)
        content += parts[i] or b""
    buffer = ctypes.create_string_buffer(bytes(content), len(content) + 1)
    start = ctypes.addressof(buffer)

    def of(i: int) -> tuple[int, int]:
        part = parts[i]
        return (0, 0) if part is None else (start + places[i], len(part))

    structs = [
        CMessage(m.error, m.topic, m.partition, *of(2 * i), *of(2 * i + 1), m.offset, 0)
        for i, m in enumerate(messages)
    ]
    return [ctypes.addressof(s) for s in structs], (buffer, structs)


def batch_of(addresses: list[int], in_bulk: bool = True, **options: Any) -> tuple[ArrayBatch, Heap]:
    heap: Any = Heap(in_bulk)
    batch = ArrayBatch(heap, max(1, len(addresses)), **options)
    batch.addresses[: len(addresses)] = addresses
    return batch, heap


some_bytes = st.one_of(st.none(), st.binary(max_size=40))
made = st.builds(
    Made,
    some_bytes,
    some_bytes,
    st.sampled_from([0x1000, 0x2000]),
    st.integers(0, 2),
    st.integers(0, (1 << 63) - 1),
    st.sampled_from([0, 0, 0, 0, -191, 29]),
)


@given(
    st.lists(made, max_size=40),
    st.sampled_from([0, 7, 2_000]),
    st.booleans(),
    st.sampled_from([{}, {"binary_bytes_max": 50}]),
    st.booleans(),
)
def test_records_errors_and_runs_are_those_that_are_there(
    messages: list[Made], gap: int, backwards: bool, options: dict[str, int], in_bulk: bool
) -> None:
    addresses, _kept = memory_of(messages, gap, backwards)
    batch, heap = batch_of(addresses, in_bulk, **options)
    found = batch.survey(len(addresses))
    records = [m for m in messages if not m.error]
    assert found.records == len(records)
    assert found.bytes == sum(len(m.value or b"") + len(m.key or b"") for m in records)
    assert found.failed.tolist() == [
        [addresses[i], sum(not m.error for m in messages[:i])] for i, m in enumerate(messages) if m.error
    ]
    bounds = [*found.runs[:, 0].tolist(), len(records)]
    places = [
        place
        for (_, *place), first, end in zip(found.runs.tolist(), bounds, bounds[1:], strict=False)
        for _ in range(first, end)
    ]
    assert places == [[m.topic, m.partition] for m in records]
    assert len(found.runs) == sum(
        i == 0 or (m.topic, m.partition) != (records[i - 1].topic, records[i - 1].partition)
        for i, m in enumerate(records)
    )
    for column, expected in ((VALUE, [m.value for m in records]), (KEY, [m.key for m in records])):
        array = batch.gather(column)
        array.validate(full=True)
        assert array.to_pylist() == expected
        is_large = sum(len(entry or b"") for entry in expected) > options.get("binary_bytes_max", 1 << 31)
        assert array.type == (pa.large_binary() if is_large else pa.binary())
    assert batch.offsets().tolist() == [m.offset for m in records]
    batch.release()
    batch.release()
    assert heap.destroyed == [address for address, m in zip(addresses, messages, strict=True) if not m.error]


@pytest.mark.parametrize("breaks", [0, 1, 3, 400])
@pytest.mark.parametrize("gap", [0, 9, 1_500])
def test_values_that_lie_in_long_rows_are_copied_with_nothing_of_what_lies_between(
    breaks: int, gap: int
) -> None:
    messages = [Made(b"%d" % i * (i % 5), None if i % 7 else b"k%d" % i, offset=i) for i in range(1_000)]
    addresses, _kept = memory_of(messages, gap, False)
    pieces = np.array_split(np.arange(len(messages)), breaks + 1)[::-1]
    order = np.concatenate(pieces).tolist()
    batch, _ = batch_of([addresses[i] for i in order])
    batch.survey(len(addresses))
    for column, of in ((VALUE, [m.value for m in messages]), (KEY, [m.key for m in messages])):
        array = batch.gather(column)
        array.validate(full=True)
        assert array.to_pylist() == [of[i] for i in order]
    assert batch.offsets().tolist() == order


def test_what_was_gathered_stays_when_the_messages_are_gone() -> None:
    messages = [Made(b"value %d" % i) for i in range(300)]
    addresses, (buffer, _structs) = memory_of(messages, 3, False)
    batch, _ = batch_of(addresses)
    batch.survey(len(addresses))
    array = batch.gather(VALUE)
    batch.release()
    ctypes.memset(buffer, 0, len(buffer))
    assert array.to_pylist() == [m.value for m in messages]


def test_a_record_without_a_timestamp_is_told_from_one_of_1970() -> None:
    addresses, _kept = memory_of([Made(b"", offset=0), Made(b"", offset=1)], 0, False)
    batch, _ = batch_of(addresses)
    batch.survey(2)
    times, kinds = batch.timestamps()
    assert times.tolist() == [-1, 0]
    assert kinds.tolist() == [0, 1]


def test_this_version_of_librdkafka_takes_messages_back_in_one_call() -> None:
    """If it fails for a newer one: look whether rd_kafka_messages_t is as before, then add the version."""
    try:
        library = load_library()
    except UnsupportedLibraryError as reason:
        pytest.skip(str(reason))
    assert library.destroys_in_bulk()
    library.destroy_messages(np.zeros(0, np.int64))


def test_bytes_in_a_headers_name_that_are_no_text_are_replaced() -> None:
    starts = np.array([0, 0, 2], np.int32)
    names, values = pa.array([b"\xffx", b"ok"], pa.binary()), pa.array([None, b"1"], pa.binary())
    headers = headers_of(starts, names, values)
    headers.validate(full=True)
    assert headers.type == HEADERS_TYPE
    assert headers.to_pylist() == [[], [{"key": "\ufffdx", "value": None}, {"key": "ok", "value": b"1"}]]
