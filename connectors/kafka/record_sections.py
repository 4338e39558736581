"""Section: the records of one batch, uncompressed, and how far they have been handed on; what reads them.

There are two readers: `fetch_records.py` with kernels, `fetch_record_arrays.py` without. Both answer the
same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from onceflow.connectors.kafka.fetch import Fetched, Wanted
from onceflow.runtime.kernels.compiled import kernels_enabled
from onceflow.runtime.records import Int64s

SECTION_FIELDS = 10
(
    AT,
    END,
    LEFT,
    FIRST_OFFSET,
    FIRST_TIME,
    FIXED_TIME,
    TIME_KIND,
    WANTED_FROM,
    WANTED_TO,
    SPLIT,
) = range(SECTION_FIELDS)
"""The fields of a section: its addresses (from, and up to but without), how many records are left, what their
offsets and times are relative to, or the time of all (if TIME_KIND is not CREATE_TIME), the offsets that are
wanted (from, and up to but without), and the number of the split."""


@dataclass(slots=True, eq=False)
class Section:
    """Neighbouring records in memory. Its bytes stay until the fetch that follows on its last record."""

    fields: Int64s
    """An array of SECTION_FIELDS numbers."""
    memory: Any = None
    """Keeps the bytes alive; None: somebody else does."""
    found: Any = None
    """What its reader remembers of it."""


class SectionReader(Protocol):
    """Room for the records of one fetch after the other. One thread."""

    def read(self, sections: Sequence[Section], records_max: int) -> tuple[Fetched, int]:
        """The next records of these sections, at most records_max and as many as there is room for, and how
        many sections have nothing left. The next one goes on where it was left; whoever calls again may
        have left some out and put others behind.

        Values, keys and headers are copied, `details` may look at the sections' own bytes. Raises
        ProtocolError if records are malformed: nothing of them was handed on.
        """
        ...


def open_section_reader(wanted: Wanted, room: int, kernels: bool | None = None) -> SectionReader:
    """`room`: for how many records. `kernels`: whether to use them; None: if they are enabled."""
    if kernels_enabled() if kernels is None else kernels:
        from onceflow.connectors.kafka.fetch_records import RecordColumns  # needs numba

        return RecordColumns(wanted, room)
    from onceflow.connectors.kafka.fetch_record_arrays import RecordArrays

    return RecordArrays(wanted, room)


def table_of(sections: Sequence[Section]) -> Int64s:
    """The fields of sections, a row for each."""
    return np.array([section.fields for section in sections], np.int64).reshape(-1, SECTION_FIELDS)
