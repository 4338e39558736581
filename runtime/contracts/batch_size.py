"""BatchSize: for how many records a source is asked at once, and how many an operator takes at once.

All that happens to a batch costs something once for the batch and something for each record. Many records
make the first small; but a barrier waits until the batch before it is through. So a batch grows while it is
through quickly, and shrinks when it takes long (a user's function of a millisecond for each record), unless
the time is the batch's own and not its records' (a model that is called once a batch): then fewer records
would only mean more batches.
"""

from __future__ import annotations

RECORDS_MAX = 40_000
"""The most records of a batch: more are no faster (ADR 75)."""
RECORDS_FIRST = 1_000
OPERATOR_RECORDS_MIN = 256
"""The fewest that an operator takes at once. On a machine with more to do than it has cores for, a batch
takes long since others run meanwhile: with fewer and fewer records each would only cost more."""
GOAL_MS = 20.0
"""A batch grows up to it; one that takes twice as long shrinks to it. A fifth of a short checkpoint
interval."""
_CHANGE_MAX = 4
"""The most that the size changes by at once: one batch may have taken long for something else."""


class BatchSize:
    """How many records one task takes at once. Call `ask` before it takes some, then `took`."""

    def __init__(self, most: int = RECORDS_MAX, first: int = RECORDS_FIRST, least: int = 1) -> None:
        self._most, self._least = most, min(least, most)
        self._records = min(first, most)
        self._began_ms = 0.0
        self._taken = 0
        self._last: tuple[int, float] | None = None
        self._other: tuple[int, float] | None = None
        """Records and time of the last batch of another size than `_last`."""

    def ask(self, now_ms: float) -> int:
        """How many records to poll for. What the last poll brought is through: the next may be made."""
        if self._taken:
            self._learn(self._taken, now_ms - self._began_ms)
            self._taken = 0
        self._began_ms = now_ms
        return self._records

    def took(self, records: int) -> None:
        """The poll brought so many; they are on their way."""
        self._taken = records

    def _learn(self, records: int, took_ms: float) -> None:
        if self._last is not None and self._last[0] != records:
            self._other = self._last
        self._last = records, took_ms
        is_full = 2 * records >= self._records  # the others were dead letters, or an answer's last
        if took_ms <= GOAL_MS:
            if is_full:
                self._change(2.0 * self._records)
            return
        fixed_ms = self._fixed_ms()
        each_ms = max(took_ms - fixed_ms, 1e-6) / records
        if took_ms > 2 * GOAL_MS:
            self._change(max((GOAL_MS - fixed_ms) / each_ms, fixed_ms / each_ms))
        elif is_full and (self._other is None or 2 * fixed_ms > took_ms):
            self._change(2.0 * self._records)

    def _fixed_ms(self) -> float:
        """What a batch takes without its records: by a line through two batches of different size. 0: not
        known, or none."""
        if self._last is None or self._other is None:
            return 0.0
        (records, took_ms), (other_records, other_ms) = self._last, self._other
        each_ms = (took_ms - other_ms) / (records - other_records)
        return max(0.0, min(took_ms, took_ms - each_ms * records))

    def _change(self, records: float) -> None:
        low, high = self._records / _CHANGE_MAX, self._records * _CHANGE_MAX
        self._records = int(max(self._least, min(max(records, low), high, self._most)))
