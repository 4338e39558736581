"""Where the reading of a topic may begin, and where it may end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Earliest:
    """Start at the first record that is still there."""


@dataclass(frozen=True, slots=True)
class Latest:
    """Start at the first record that becomes visible after the start of the job."""


@dataclass(frozen=True, slots=True)
class AtTime:
    """Start at the first record whose timestamp is at or after time_ms; at the end if there is none."""

    time_ms: int


@dataclass(frozen=True, slots=True)
class FromGroup:
    """Start at what the group committed; partitions it never committed start at their beginning."""

    group_id: str


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """Start at these offsets, by split id (`events-0`); every partition must be named."""

    offsets: Mapping[str, int]


Stop = Latest | AtTime | AtOffsets
"""Where reading ends: before the first record that a reader that starts there would read."""
Start = Earliest | Latest | AtTime | FromGroup | AtOffsets
