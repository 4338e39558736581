"""Kernels that copy the headers of records which `read_kernels.read` has checked: here are no bounds.
Import only if kernels are enabled."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from onceflow.runtime.kernels.compiled import kernel
from onceflow.runtime.kernels.memory import copy_bytes
from onceflow.runtime.kernels.varints import varint
from onceflow.runtime.records import Int64s

HEADER_SUMS = 4
"""How many numbers `survey_headers` gives: headers, bytes of names and of values, null values."""


@kernel
def survey_headers(headers_at: Int64s, starts: npt.NDArray[np.int32], sums: Int64s) -> None:
    """`starts`, one longer than there are records, gets where the headers of each begin, in the order of all
    headers."""
    headers = 0
    name_bytes = 0
    value_bytes = 0
    nulls = 0
    for i in range(len(headers_at)):
        starts[i] = headers
        count, at = varint(headers_at[i], headers_at[i] + 10)
        headers += count
        for _ in range(count):
            length, at = varint(at, at + 10)
            name_bytes += length
            length, at = varint(at + length, at + length + 10)
            value_bytes += max(length, 0)
            nulls += length < 0
            at += max(length, 0)
    starts[len(headers_at)] = headers
    sums[0] = headers
    sums[1] = name_bytes
    sums[2] = value_bytes
    sums[3] = nulls


@kernel
def gather_headers(
    headers_at: Int64s,
    name_starts: npt.NDArray[np.int32],
    names: int,
    value_starts: npt.NDArray[np.int32],
    values: int,
    valid: npt.NDArray[np.uint8],
) -> None:
    """Copies names and values of all headers to the addresses `names` and `values`; else as in gather."""
    header = 0
    name_at = 0
    value_at = 0
    name_starts[0] = 0
    value_starts[0] = 0
    for i in range(len(headers_at)):
        count, at = varint(headers_at[i], headers_at[i] + 10)
        for _ in range(count):
            length, at = varint(at, at + 10)
            copy_bytes(names + name_at, at, length)
            name_at += length
            length, at = varint(at + length, at + length + 10)
            if length >= 0:
                copy_bytes(values + value_at, at, length)
                value_at += length
                at += length
                if len(valid) > 0:
                    valid[header >> 3] |= np.uint8(1 << (header & 7))
            header += 1
            name_starts[header] = name_at
            value_starts[header] = value_at
