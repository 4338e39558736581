"""Section: the records of one batch, uncompressed, and how far they have been handed on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

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


def table_of(sections: Sequence[Section]) -> Int64s:
    """The fields of sections, a row for each."""
    return np.array([section.fields for section in sections], np.int64).reshape(-1, SECTION_FIELDS)
