"""Rows in PRODUCE_SCHEMA as the structs that librdkafka takes in bulk. Copies no bytes of a record."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from onceflow.connectors.kafka.librdkafka.library import CMessage
from onceflow.connectors.kafka.produce.constant_columns import only_topic
from onceflow.connectors.kafka.produce.partition_order import sort_partitions
from onceflow.runtime.arrays.offsets import offsets_of

MESSAGE: np.dtype[Any] = np.dtype(CMessage)
Messages = npt.NDArray[Any]
"""An array of dtype MESSAGE."""

ARGUMENT = np.dtype(
    {
        "names": ["kind", "first", "second", "third"],
        "formats": [np.int32, np.int64, np.int64, np.int64],
        "offsets": [0, 8, 16, 24],
        "itemsize": 72,
    }
)
"""rd_kafka_vu_t of rdkafka.h: what a value is, and up to three words of it (pointers, sizes, numbers)."""
_TOPIC, _PARTITION, _VALUE, _KEY, _FLAGS, _TIMESTAMP, _HEADER = 1, 3, 4, 5, 7, 8, 9  # rd_kafka_vtype_t
_FIXED = (_TOPIC, _PARTITION, _FLAGS, _KEY, _VALUE, _TIMESTAMP)
COPY = 0x2
"""librdkafka's RD_KAFKA_MSG_F_COPY: it copies what it is given."""


@dataclass(frozen=True, slots=True)
class Run:
    """Neighbouring rows for one partition of one topic."""

    topic: str
    partition: int
    """-1: librdkafka chooses."""
    start: int
    stop: int
    """The numbers of the first row, and of the row behind the last."""


class MessageArray:
    """Fills one array again and again: fresh pages cost more than the filling."""

    def __init__(self) -> None:
        self._messages = np.zeros(0, MESSAGE)

    def fill(self, rows: pa.RecordBatch) -> Messages:
        """One message for each row, in order: key and value point into `rows`, which must stay alive as
        long as the messages are used. Headers and timestamps have no place in them. Valid until the
        next call."""
        count = rows.num_rows
        if count > len(self._messages):
            self._messages = np.zeros(count, MESSAGE)
        messages = self._messages[:count]
        _point(messages, "payload", "len", rows["value"])
        _point(messages, "key", "key_len", rows["key"])
        return messages


def sorted_by_partition(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The same rows in few runs; rows of one partition keep their order."""
    if only_topic(rows) is not None:
        order, _ = sort_partitions(rows["partition"].to_numpy())
        return rows.take(pa.array(order))
    return rows.take(pc.sort_indices(rows, [("topic", "ascending"), ("partition", "ascending")]))


def runs(rows: pa.RecordBatch) -> list[Run]:
    """The rows cut where topic or partition changes: few pieces if they are sorted by them."""
    partitions = rows["partition"].to_numpy()
    cuts = np.flatnonzero(partitions[1:] != partitions[:-1]) + 1
    found: list[Run] = []
    start = 0
    topic = only_topic(rows)
    if topic is not None:
        for stop in [*cuts.tolist(), rows.num_rows]:
            found.append(Run(topic, int(partitions[start]), start, stop))
            start = stop
        return found
    topics = pc.run_end_encode(rows["topic"])
    for topic, end in zip(topics.values.to_pylist(), topics.run_ends.to_pylist(), strict=True):
        inside = cuts[(cuts > start) & (cuts < end)].tolist()
        for stop in [*inside, end]:
            found.append(Run(topic, int(partitions[start]), start, stop))
            start = stop
    return found


def is_plain(rows: pa.RecordBatch) -> bool:
    """Whether messages can hold all that the rows do: none has headers or a timestamp."""
    count = rows.num_rows
    return bool(rows["headers"].null_count == count and rows["timestamp"].null_count == count)


@dataclass(frozen=True, slots=True)
class Arguments:
    """What `rd_kafka_produceva` is called with for each row: any record can be said in this way."""

    addresses: list[int]
    counts: list[int]
    """How many arguments each call has: six, and one for each header."""
    owners: tuple[object, ...]
    """What the addresses point into, less the rows themselves: keep both as long as they are used."""


def arguments_of(rows: pa.RecordBatch) -> Arguments:
    """Header keys are text without NUL."""
    headers = rows["headers"]
    header_counts = pc.fill_null(pc.list_value_length(headers), 0).to_numpy().astype(np.int64)
    counts = len(_FIXED) + header_counts
    ends = np.cumsum(counts)
    starts = ends - counts
    arguments = np.zeros(int(ends[-1]) if len(ends) else 0, ARGUMENT)
    for position, kind in enumerate(_FIXED):
        arguments["kind"][starts + position] = kind
    topics, topic_owner = _pointers_to_text(rows["topic"])
    arguments["first"][starts] = topics
    arguments["first"][starts + 1] = rows["partition"].to_numpy()  # its low half is read
    arguments["first"][starts + 2] = COPY
    for position, name in ((3, "key"), (4, "value")):
        messages = np.zeros(len(starts), MESSAGE)
        _point(messages, "payload", "len", rows[name])
        arguments["first"][starts + position] = messages["payload"]
        arguments["second"][starts + position] = messages["len"]
    arguments["first"][starts + 5] = pc.fill_null(rows["timestamp"], 0).to_numpy()
    names, values = headers.flatten().flatten()
    values = values.cast(pa.large_binary())
    name_owner: object = None
    if len(names):
        nth = np.arange(len(names)) - np.repeat(np.cumsum(header_counts) - header_counts, header_counts)
        at = np.repeat(starts + len(_FIXED), header_counts) + nth
        arguments["kind"][at] = _HEADER
        arguments["first"][at], name_owner = _pointers_to_text(names)
        messages = np.zeros(len(names), MESSAGE)
        _point(messages, "payload", "len", values)
        arguments["second"][at] = messages["payload"]
        arguments["third"][at] = messages["len"]
    addresses = arguments.ctypes.data + starts * ARGUMENT.itemsize
    owners = (arguments, topic_owner, name_owner, values)
    return Arguments(addresses.tolist(), counts.tolist(), owners)


def _pointers_to_text(texts: pa.StringArray) -> tuple[npt.NDArray[np.int64], object]:
    """A C string for each, and what owns them. There are few different ones."""
    encoded = pc.fill_null(texts, "").dictionary_encode()
    owned = [ctypes.create_string_buffer(text.encode()) for text in encoded.dictionary.to_pylist()]
    addresses = np.array([ctypes.addressof(buffer) for buffer in owned], np.int64)
    return addresses[encoded.indices.to_numpy()], owned


def _point(messages: Messages, pointer: str, length: str, values: pa.LargeBinaryArray) -> None:
    """A null is a null pointer; an empty value is a pointer to no bytes."""
    validity, offset_buffer, data = values.buffers()
    count = len(values)
    if values.null_count == count:  # as the keys of a topic without keys are
        messages[pointer] = messages[length] = 0
        return
    # Unsigned as the fields are: then NumPy needs no copy to convert them.
    offsets = offsets_of(values).view(np.uint64)
    base = data.address if data is not None and data.size else offset_buffer.address
    np.add(offsets[:-1], np.uint64(base), out=messages[pointer])
    np.subtract(offsets[1:], offsets[:-1], out=messages[length])
    if validity is not None and values.null_count:
        is_null = values.is_null().to_numpy(zero_copy_only=False)
        messages[pointer][is_null] = 0
        messages[length][is_null] = 0
