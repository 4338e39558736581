"""Gathering: small batches of rows until there are enough of them to be worth encoding.

Encoding, staging and sending a batch cost about as much for ten rows as for a thousand. Between two
barriers nothing of a sink's rows is needed, so they wait here as they are.
"""

from __future__ import annotations

from onceflow.runtime.records import Records, concatenated

ROWS_ENOUGH = 4_096
BYTES_ENOUGH = 1 << 20


class Gathering:
    """Rows of one stream in the order in which they came. Not more than one batch beyond what is enough."""

    def __init__(self) -> None:
        self._batches: list[Records] = []
        self._rows = 0
        self._bytes = 0

    def __bool__(self) -> bool:
        return bool(self._batches)

    def add(self, records: Records) -> None:
        self._batches.append(records)
        self._rows += len(records)
        self._bytes += records.batch.nbytes

    def fits(self, records: Records) -> bool:
        """Whether these can be in one batch with what is here."""
        return not self._batches or bool(self._batches[0].batch.schema.equals(records.batch.schema))

    @property
    def is_enough(self) -> bool:
        return self._rows >= ROWS_ENOUGH or self._bytes >= BYTES_ENOUGH

    def take(self) -> tuple[Records, list[int]]:
        """All of it as one batch, and how many rows each of those had that came. Without key hashes and
        origins. Empty after."""
        assert self._batches, "there is something"
        batches, rows = self._batches, [len(records) for records in self._batches]
        self._batches, self._rows, self._bytes = [], 0, 0
        rest = [Records(records.batch, records.event_time, kind=records.kind) for records in batches]
        return concatenated(rest), rows
