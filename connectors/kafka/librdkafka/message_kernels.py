"""Kernels that walk over librdkafka's messages. Import only if kernels are enabled.

`messages` are addresses of rd_kafka_message_t, whose layout is part of rdkafka.h; see CMessage.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from onceflow.runtime.kernels.compiled import kernel
from onceflow.runtime.kernels.memory import (
    call_for_int32,
    call_for_int64,
    call_with_five,
    call_with_pointer,
    copy_bytes,
    load_int32,
    load_int64,
    load_uint8,
)
from onceflow.runtime.records import Int64s

_TOPIC, _PARTITION, _VALUE, _VALUE_BYTES, _KEY, _KEY_BYTES, _OFFSET = 8, 16, 24, 32, 40, 48, 56

COUNTS = 7
"""How many numbers `survey` gives: records, runs, errors, bytes of values and keys, null values and keys."""

HEADER_COUNTS = 4
"""How many numbers `survey_headers` gives: headers, bytes of names and values, null values."""

HEADER_CALLS = 6
"""How many numbers the functions that read headers need: two addresses; and places for the pointers that
librdkafka gives: a record's headers, a name, a value and how long that is."""


@kernel
def survey(
    messages: Int64s, count: int, runs: npt.NDArray[np.int64], failed: npt.NDArray[np.int64], counts: Int64s
) -> None:
    """Moves the records among the first `count` messages to the front of `messages`, in their order.

    `failed` (count x 2) gets the others: address, and how many records came before. `runs` (count x 3)
    gets first record, address of the topic and partition of each run of records of one partition.
    """
    records = 0
    errors = 0
    found = 0
    value_bytes = 0
    key_bytes = 0
    null_values = 0
    null_keys = 0
    topic = 0
    partition = -1
    for i in range(count):
        message = messages[i]
        if load_int32(message) != 0:
            failed[errors, 0] = message
            failed[errors, 1] = records
            errors += 1
            continue
        if load_int64(message + _TOPIC) != topic or load_int32(message + _PARTITION) != partition:
            topic = load_int64(message + _TOPIC)
            partition = load_int32(message + _PARTITION)
            runs[found, 0] = records
            runs[found, 1] = topic
            runs[found, 2] = partition
            found += 1
        value_bytes += load_int64(message + _VALUE_BYTES)
        key_bytes += load_int64(message + _KEY_BYTES)
        null_values += load_int64(message + _VALUE) == 0
        null_keys += load_int64(message + _KEY) == 0
        messages[records] = message
        records += 1
    counts[0] = records
    counts[1] = found
    counts[2] = errors
    counts[3] = value_bytes
    counts[4] = key_bytes
    counts[5] = null_values
    counts[6] = null_keys


@kernel
def gather(
    messages: Int64s,
    count: int,
    field: int,
    starts: npt.NDArray[np.int32 | np.int64],
    valid: npt.NDArray[np.uint8],
    target: int,
) -> None:
    """Copies one field of records, the value's or the key's bytes, one after the other to `target`.

    `field` is where its address is in the struct; its length is next to it. `starts` (count + 1) gets
    where each begins. `valid`, a bitmap of zeros, gets a one for each that is there; empty: not needed.
    """
    written = 0
    for i in range(count):
        starts[i] = written
        source = load_int64(messages[i] + field)
        length = load_int64(messages[i] + field + 8)
        if source != 0:
            copy_bytes(target + written, source, length)
            written += length
            if len(valid) > 0:
                valid[i >> 3] |= np.uint8(1 << (i & 7))
    starts[count] = written


@kernel
def read_offsets(messages: Int64s, count: int, offsets: Int64s) -> None:
    for i in range(count):
        offsets[i] = load_int64(messages[i] + _OFFSET)


@kernel
def read_timestamps(
    messages: Int64s,
    count: int,
    function: int,
    times: Int64s,
    kind: npt.NDArray[np.int32],
    kinds: npt.NDArray[np.int8],
) -> None:
    """`function`: rd_kafka_message_timestamp. `kind` is one number of scratch space."""
    for i in range(count):
        times[i] = call_for_int64(function, messages[i], kind.ctypes.data)
        kinds[i] = kind[0]


@kernel
def destroy(messages: Int64s, count: int, function: int) -> None:
    """`function`: rd_kafka_message_destroy."""
    for i in range(count):
        call_with_pointer(function, messages[i])


@kernel
def survey_headers(messages: Int64s, calls: Int64s, starts: npt.NDArray[np.int32], counts: Int64s) -> None:
    """`starts`, one longer than there are records, gets where the headers of each begin, in the order of
    all headers.

    `calls` (HEADER_CALLS): the addresses of rd_kafka_message_headers and rd_kafka_header_get_all, then
    scratch space.
    """
    find = calls[0]
    get = calls[1]
    place = calls.ctypes.data + 16
    headers = 0
    name_bytes = 0
    value_bytes = 0
    nulls = 0
    for i in range(len(starts) - 1):
        starts[i] = headers
        if call_for_int32(find, messages[i], place) != 0:
            continue  # it has none
        each = 0
        while call_with_five(get, calls[2], each, place + 8, place + 16, place + 24) == 0:
            name_bytes += text_bytes(calls[3])
            if calls[4] == 0:
                nulls += 1
            else:
                value_bytes += calls[5]
            each += 1
        headers += each
    starts[len(starts) - 1] = headers
    counts[0] = headers
    counts[1] = name_bytes
    counts[2] = value_bytes
    counts[3] = nulls


@kernel
def gather_headers(
    messages: Int64s,
    calls: Int64s,
    starts: npt.NDArray[np.int32],
    name_starts: npt.NDArray[np.int32],
    names: int,
    value_starts: npt.NDArray[np.int32],
    values: int,
    valid: npt.NDArray[np.uint8],
) -> None:
    """Copies names and values of all headers to the addresses `names` and `values`; `calls` and `starts` as
    survey_headers had and gave them, the rest as in gather."""
    find = calls[0]
    get = calls[1]
    place = calls.ctypes.data + 16
    header = 0
    name_at = 0
    value_at = 0
    name_starts[0] = 0
    value_starts[0] = 0
    for i in range(len(starts) - 1):
        if starts[i] == starts[i + 1]:
            continue  # to look again takes as long: librdkafka keeps only what it has found
        call_for_int32(find, messages[i], place)
        each = 0
        while call_with_five(get, calls[2], each, place + 8, place + 16, place + 24) == 0:
            length = text_bytes(calls[3])
            copy_bytes(names + name_at, calls[3], length)
            name_at += length
            if calls[4] != 0:
                copy_bytes(values + value_at, calls[4], calls[5])
                value_at += calls[5]
                if len(valid) > 0:
                    valid[header >> 3] |= np.uint8(1 << (header & 7))
            each += 1
            header += 1
            name_starts[header] = name_at
            value_starts[header] = value_at


@kernel
def text_bytes(address: int) -> int:
    """The length of the text at this address, which ends with a zero byte."""
    length = 0
    while load_uint8(address + length) != 0:
        length += 1
    return length
