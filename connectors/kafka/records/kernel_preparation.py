"""Calls the kernels that read and write records: see runtime/kernels/preparation.py."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from onceflow.connectors.kafka.records import read_header_kernels as header_kernels
from onceflow.connectors.kafka.records import read_kernels as kernels
from onceflow.connectors.kafka.records import write_kernels
from onceflow.connectors.kafka.records.section import SECTION_FIELDS


def prepare() -> None:
    """Nothing is there to read, in arrays of the fetcher's types."""
    none, numbers = 0, np.zeros(1, np.int64)
    sections = np.zeros((1, SECTION_FIELDS), np.int64)
    records, sums = np.zeros((kernels.RECORD_FIELDS, 1), np.int64), np.zeros(kernels.SUMS, np.int64)
    kernels.read(sections, True, 1, records, sums)
    for width in (np.int32, np.int64):
        starts: npt.NDArray[Any] = np.zeros(1, width)
        kernels.gather(numbers[:0], numbers[:0], starts, np.zeros(0, np.uint8), none)
    starts, valid = np.zeros(1, np.int32), np.zeros(0, np.uint8)
    header_kernels.survey_headers(numbers[:0], starts, np.zeros(header_kernels.HEADER_SUMS, np.int64))
    header_kernels.gather_headers(numbers[:0], starts, none, starts, none, valid)
    columns, written = np.zeros(write_kernels.COLUMNS, np.int64), np.zeros(3, np.int64)
    write_kernels.write_records(none, none, none, none, columns, written)
