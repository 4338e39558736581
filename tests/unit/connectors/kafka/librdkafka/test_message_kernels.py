"""The kernels of the bulk fetcher, over messages made here instead of by librdkafka."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceflow.connectors.kafka.librdkafka.library import CMessage
from onceflow.runtime.kernels.ops import ops

pytestmark = pytest.mark.skipif(not ops().are_compiled, reason="needs numba")


@dataclass(frozen=True)
class Made:
    """What a message is made of; `error` is a code of librdkafka's or 0."""

    value: bytes | None
    key: bytes | None = None
    topic: int = 0x1000
    partition: int = 0
    offset: int = 0
    error: int = 0


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


class Memory:
    """Messages as librdkafka would have them."""

    def __init__(self, messages: list[Made]) -> None:
        self.kept: list[Any] = []
        structs = [
            CMessage(m.error, m.topic, m.partition, *self._field(m.value), *self._field(m.key), m.offset, 0)
            for m in messages
        ]
        self.kept += structs
        self.addresses = np.array([ctypes.addressof(s) for s in structs], np.int64)

    def _field(self, data: bytes | None) -> tuple[int, int]:
        if data is None:
            return 0, 0
        self.kept.append(ctypes.create_string_buffer(data, len(data) + 1))
        return ctypes.addressof(self.kept[-1]), len(data)


def survey(memory: Memory) -> tuple[list[int], Any, Any]:
    from onceflow.connectors.kafka.librdkafka import message_kernels as kernels

    count = len(memory.addresses)
    runs, failed = np.zeros((count, 3), np.int64), np.zeros((count, 2), np.int64)
    counts = np.zeros(kernels.COUNTS, np.int64)
    kernels.survey(memory.addresses, count, runs, failed, counts)
    return counts.tolist(), runs, failed


def gathered(memory: Memory, field: int, count: int, size: int, starts_type: Any) -> list[bytes | None]:
    from onceflow.connectors.kafka.librdkafka import message_kernels as kernels

    data = pa.allocate_buffer(size)
    starts = np.empty(count + 1, starts_type)
    valid = np.zeros((count + 7) // 8, np.uint8)
    kernels.gather(memory.addresses, count, field, starts, valid, data.address)
    buffers = [pa.py_buffer(valid), pa.py_buffer(starts), data]
    type_ = pa.binary() if starts_type == np.int32 else pa.large_binary()
    array = pa.Array.from_buffers(type_, count, buffers)
    array.validate(full=True)
    found: list[bytes | None] = array.to_pylist()
    return found


@given(st.lists(made, max_size=40), st.sampled_from([np.int32, np.int64]))
def test_records_errors_and_runs_are_those_that_are_there(messages: list[Made], starts_type: Any) -> None:
    memory = Memory(messages)
    before = memory.addresses.tolist()
    counts, runs, failed = survey(memory)
    records = [m for m in messages if not m.error]
    assert counts[0] == len(records)
    assert counts[2] == len(messages) - len(records)
    assert counts[3:] == [
        sum(len(m.value or b"") for m in records),
        sum(len(m.key or b"") for m in records),
        sum(m.value is None for m in records),
        sum(m.key is None for m in records),
    ]
    assert gathered(memory, CMessage.payload.offset, counts[0], counts[3], starts_type) == [
        m.value for m in records
    ]
    assert gathered(memory, CMessage.key.offset, counts[0], counts[4], starts_type) == [
        m.key for m in records
    ]
    bounds = [*runs[: counts[1], 0].tolist(), len(records)]
    places = [
        place
        for (_, *place), first, end in zip(runs[: counts[1]].tolist(), bounds, bounds[1:], strict=False)
        for _ in range(first, end)
    ]
    assert places == [[m.topic, m.partition] for m in records]
    assert failed[: counts[2]].tolist() == [
        [before[i], sum(not m.error for m in messages[:i])] for i, m in enumerate(messages) if m.error
    ]


@given(st.lists(made, max_size=10))
def test_offsets_are_read_and_each_record_is_destroyed_once(messages: list[Made]) -> None:
    from onceflow.connectors.kafka.librdkafka import message_kernels as kernels

    memory = Memory(messages)
    offsets = np.empty(len(messages), np.int64)
    kernels.read_offsets(memory.addresses, len(messages), offsets)
    assert offsets.tolist() == [m.offset for m in messages]
    destroyed: list[int | None] = []
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(destroyed.append)
    address = ctypes.cast(function, ctypes.c_void_p).value
    assert address is not None
    kernels.destroy(memory.addresses, len(messages), address)
    assert destroyed == memory.addresses.tolist()


def test_a_record_without_a_timestamp_is_told_from_one_of_1970() -> None:
    from onceflow.connectors.kafka.librdkafka import message_kernels as kernels

    memory = Memory([Made(b"", offset=0), Made(b"", offset=1)])

    def timestamp(message: int, kind: int) -> int:
        offset = CMessage.from_address(message).offset
        ctypes.c_int.from_address(kind).value = 1 if offset else 0
        return 0 if offset else -1

    function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)(timestamp)
    address = ctypes.cast(function, ctypes.c_void_p).value
    assert address is not None
    times, kinds = np.empty(2, np.int64), np.empty(2, np.int8)
    kernels.read_timestamps(memory.addresses, 2, address, times, np.zeros(1, np.int32), kinds)
    assert times.tolist() == [-1, 0]
    assert kinds.tolist() == [0, 1]
