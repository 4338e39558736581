"""Kernels that walk over librdkafka's messages. Import only if kernels are enabled.

`messages` are addresses of rd_kafka_message_t, whose layout is part of rdkafka.h; see CMessage.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from onceflow.runtime.kernels.compiled import kernel
from onceflow.runtime.kernels.memory import (
    call_for_int64,
    call_with_pointer,
    copy_bytes,
    load_int32,
    load_int64,
)
from onceflow.runtime.records import Int64s

_TOPIC, _PARTITION, _VALUE, _VALUE_BYTES, _KEY, _KEY_BYTES, _OFFSET = 8, 16, 24, 32, 40, 48, 56

COUNTS = 7
"""How many numbers `survey` gives: records, runs, errors, bytes of values and keys, null values and keys."""


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
