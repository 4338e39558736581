"""SnapshotOptions: how the snapshots of a job's state are made."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SnapshotOptions:
    """Whether a job's snapshots build on each other, and when a table is written whole nevertheless."""

    are_incremental: bool = False
    whole_rows_max: int = 1 << 10
    """Up to so many rows there is little to be gained."""
    whole_share: float = 0.5
    """From this share of its rows on it costs little more to write, and less to read."""


WHOLE = SnapshotOptions()
"""Each snapshot is of all rows."""
