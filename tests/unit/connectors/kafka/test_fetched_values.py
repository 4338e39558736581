"""How many records a fetch hands on, and that their values lie in memory that is used again, but never while
somebody has them."""

from __future__ import annotations

from typing import Any

import numpy as np

from onceflow.connectors.formats.format import as_list
from onceflow.connectors.kafka.fetch import Wanted
from tests.unit.connectors.kafka.test_record_batches import (
    NO_KEY,
    START,
    needs_numba,
    number,
    reader,
    record,
    section_of,
)


@needs_numba
def test_values_lie_in_memory_that_is_used_again_once_nobody_has_them() -> None:
    """Goal: no new memory for each fetch, and what somebody still has is never written to."""
    columns = reader(True, Wanted(), 5)

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


def test_without_kernels_a_fetch_ends_with_a_section_or_is_full() -> None:
    """Goal: no fetch for the few records that are left of a section. Each costs as much as thousands."""
    values = [b"%d" % n for n in range(30)]
    data = b"".join(record(START, NO_KEY, number(len(value)) + value, number(0)) for value in values)
    memory = np.frombuffer(data, np.uint8).copy()
    sections = [section_of(memory, 0, len(data), len(values)) for _ in range(5)]
    columns, sizes = reader(False, Wanted(), 1_000), []
    while sections:
        fetched, finished = columns.read(sections, 100)
        assert as_list(fetched.value) == values * (len(fetched) // 30)
        sizes.append(len(fetched))
        sections = sections[finished:]
    assert sizes == [90, 60]
    assert [len(columns.read([section_of(memory, 0, len(data), 30)], 20)[0])] == [20], "or a part of one"
