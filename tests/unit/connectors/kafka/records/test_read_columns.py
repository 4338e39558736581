"""The values that a fetch hands on lie in memory that is used again, but never while somebody has them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onceflow.connectors.formats.format import as_list
from onceflow.connectors.kafka.fetched import Wanted
from onceflow.runtime.kernels.ops import ops

if not ops().are_compiled:
    pytest.skip("needs numba", allow_module_level=True)

from tests.unit.connectors.kafka.records.test_batch_headers import (
    NO_KEY,
    START,
    RecordColumns,
    number,
    record,
    section_of,
)


def test_values_lie_in_memory_that_is_used_again_once_nobody_has_them() -> None:
    """Goal: no new memory for each fetch, and what somebody still has is never written to."""
    columns = RecordColumns(Wanted(), 5)

    def fetched(value: bytes) -> Any:
        data = record(START, NO_KEY, number(len(value)) + value, number(0))
        memory = np.frombuffer(data, np.uint8).copy()
        return columns.read([section_of(memory, 0, len(data), 1)], 5)[0].value

    kept = fetched(b"kept")
    part = kept.slice(0, 1)
    address = kept.buffers()[2].address
    del kept
    other = fetched(b"other")
    assert other.buffers()[2].address != address
    assert as_list(part) == [b"kept"]
    assert as_list(other) == [b"other"]
    del part, other
    assert fetched(b"next").buffers()[2].address == address
