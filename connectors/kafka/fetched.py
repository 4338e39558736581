"""Fetcher: how a reader gets at what librdkafka has fetched, in columns.

There are three, and all answer the same. `fetch/per_message.py` takes confluent_kafka's Message objects; it
works everywhere, and says what is right. With kernels, `fetch/librdkafka_queue.py` copies librdkafka's own
buffers into Arrow, where librdkafka can be called directly, and `fetch/backlog.py` asks the brokers
themselves for what is far behind.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from confluent_kafka import KafkaError, TopicPartition

from onceflow.connectors.formats import Values
from onceflow.connectors.formats.format import taken
from onceflow.connectors.kafka.reader_splits import RowSplits
from onceflow.runtime.records import Indices, Int64s, Mask

NO_TIME, CREATE_TIME, LOG_APPEND_TIME = 0, 1, 2
"""The kinds of timestamps, by librdkafka's numbers."""

Header = dict[str, Any]
"""`key` (str) and `value` (bytes or None)."""

HEADERS_TYPE = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
"""The Arrow type of a column of headers."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The parts of a record that are asked for beside its value and its place."""

    key: bool = False
    timestamp: bool = False
    headers: bool = False
    details: bool = False
    """`Fetched.details` of single records will be asked for (dead letters)."""


class Details(NamedTuple):
    """What a dead letter tells of its record."""

    key: bytes | None
    timestamp_ms: int | None
    headers: list[Header]


class Notice(NamedTuple):
    """Something that librdkafka says among the records: an error, or the end of a partition."""

    error: KafkaError
    split: int
    """The split's number in the SplitTable; -1: of no split of ours."""
    offset: int
    after: int
    """How many of the fetch's records came before it."""

    @property
    def is_end(self) -> bool:
        """Whether all that is there has been read, and nothing is wrong."""
        return bool(self.error.code() == KafkaError._PARTITION_EOF)


@dataclass(frozen=True, slots=True)
class Fetched:
    """Records in columns, all of the same length, in the order in which they came: that of the offsets
    within each split. What came with errors is in `notices`."""

    value: Values
    row_split: RowSplits
    offset: Int64s
    notices: Sequence[Notice] = ()
    epochs: Mapping[int, int] = field(default_factory=dict)
    """The leader's epoch of the last record of each split that has one here; NO_EPOCH: it is not known."""
    lost: frozenset[int] = frozenset()
    """Splits of which records were dropped: none of them is here, and they have to be assigned anew."""
    key: Values | None = None
    """The keys, if they are wanted; so are the columns that follow."""
    timestamp_ms: Int64s | None = None
    time_kind: npt.NDArray[np.int8] | None = None
    """What each timestamp means: NO_TIME (written before Kafka 0.10), CREATE_TIME or LOG_APPEND_TIME. There
    whenever timestamp_ms is."""
    headers: pa.Array | None = None
    """A column of HEADERS_TYPE; a record without headers has an empty list."""
    details: Callable[[int], Details] | None = None
    """Gives the details of the record at this position of the fetch; valid until the next fetch."""

    def __len__(self) -> int:
        return len(self.offset)

    def without(self, splits: Collection[int], but_errors: bool = False) -> Fetched:
        """Neither records nor notices of these splits, or with `but_errors`: no records and no ends."""
        notices = [n for n in self.notices if n.split not in splits or (but_errors and not n.is_end)]
        kept = ~np.isin(self.row_split, list(splits))
        if kept.all() and len(notices) == len(self.notices):
            return self
        before = np.append(0, np.cumsum(kept))
        moved = [notice._replace(after=int(before[notice.after])) for notice in notices]
        epochs = {split: epoch for split, epoch in self.epochs.items() if split not in splits}
        return replace(self.filter(kept), notices=moved, epochs=epochs)

    def filter(self, mask: Mask) -> Fetched:
        """The records where mask is true."""
        return self if mask.all() else self.take(np.flatnonzero(mask))

    def take(self, rows: Indices) -> Fetched:
        """The records at these positions, which ascend; one may come twice. Without the notices."""
        listed: list[int] = rows.tolist()
        details = self.details
        return replace(
            self,
            value=taken(self.value, rows),
            row_split=self.row_split[rows],
            offset=self.offset[rows],
            notices=(),
            key=None if self.key is None else taken(self.key, rows),
            timestamp_ms=None if self.timestamp_ms is None else self.timestamp_ms[rows],
            time_kind=None if self.time_kind is None else self.time_kind[rows],
            headers=None if self.headers is None else _rows(self.headers, rows),
            details=None if details is None else lambda row: details(listed[row]),
        )


def _rows(array: Any, rows: Indices) -> pa.Array:
    return array.take(pa.array(rows))


OnThrottle = Callable[[int], None]
"""Is told for how many ms a broker does not listen to us because of a quota."""


class Fetcher(Protocol):
    """Used by one thread, of which it also runs the consumer's callbacks."""

    def assign(self, positions: Sequence[TopicPartition]) -> None:
        """Fetch these as well, each from its offset. They are in the SplitTable. If a position has a leader's
        epoch, that of the last record before it, a log that is not the one which was read is an error of its
        split: see CheckedAssignment."""
        ...

    def unassign(self, positions: Sequence[TopicPartition]) -> None:
        """Let go of these partitions: nothing more comes of them."""
        ...

    def fetch(self, timeout_ms: int, records_max: int) -> Fetched:
        """What is there, at most records_max records, and bounded in bytes; if there is nothing, waits up
        to timeout_ms for the first.

        Raises what a callback of the consumer raised, and KafkaException.
        """
        ...

    def close(self) -> None:
        """Give up what is held of the consumer. Called before it is closed."""
        ...
