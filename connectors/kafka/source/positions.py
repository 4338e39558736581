"""ReaderPositions: how far each split of a reader has been read, and what proves that."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from confluent_kafka import TopicPartition

from onceflow.connectors.kafka.fetch.checked_assignment import NO_EPOCH
from onceflow.connectors.kafka.lost_records import cut_log
from onceflow.connectors.kafka.reader_splits import RowSplits, SplitTable
from onceflow.connectors.kafka.split import KafkaSplit
from onceflow.runtime.records import Int64s

_NO_STOP = np.iinfo(np.int64).max


class ReaderPositions:
    """How far a reader has come in each split, by the split's number in the table."""

    def __init__(self, table: SplitTable) -> None:
        self.next: Int64s = np.empty(0, np.int64)
        """The first offset not yet read."""
        self.stop: Int64s = np.empty(0, np.int64)
        """The first that is not to be read."""
        self._table = table
        self._epoch: Int64s = np.empty(0, np.int64)
        self._epoch_offset: Int64s = np.empty(0, np.int64)

    def add(self, splits: Sequence[KafkaSplit]) -> None:
        """Begin with splits that have just been added to the table."""
        self.next = _longer(self.next, [split.next_offset for split in splits])
        self.stop = _longer(self.stop, [_or(split.stop_offset, _NO_STOP) for split in splits])
        self._epoch = _longer(self._epoch, [_or(split.leader_epoch, NO_EPOCH) for split in splits])
        ends = [_or(split.epoch_offset, split.next_offset) for split in splits]
        self._epoch_offset = _longer(self._epoch_offset, ends)

    def split(self, index: int) -> KafkaSplit:
        """The split with this number, with its position as it is now."""
        is_known = self.has_epoch(index)
        return replace(
            self._table.splits[index],
            next_offset=int(self.next[index]),
            leader_epoch=int(self._epoch[index]) if is_known else None,
            epoch_offset=int(self._epoch_offset[index]) if is_known else None,
        )

    def starts(self, indices: Iterable[int]) -> list[TopicPartition]:
        """Where to fetch these from: see `start`."""
        return [self.start(index) for index in indices]

    def start(self, index: int) -> TopicPartition:
        """Where to fetch from: behind the last record, with its leader's epoch, which must not end before.
        What lies between it and the next offset were no records."""
        split = self.split(index)
        if split.leader_epoch is None or split.epoch_offset is None:
            return TopicPartition(split.topic, split.partition, split.next_offset)
        return TopicPartition(
            split.topic, split.partition, split.epoch_offset, leader_epoch=split.leader_epoch
        )

    def has_epoch(self, index: int) -> bool:
        return bool(self._epoch[index] != NO_EPOCH)

    def forget_epoch_before(self, index: int, low: int) -> None:
        """The log begins at low now: if the last record is not there any more, it proves nothing."""
        if self._epoch_offset[index] < low:
            self._epoch[index] = NO_EPOCH

    def go_on(self, lasts: Mapping[int, int], epochs: Mapping[int, int]) -> None:
        """The last record of each split that has been handed on, and the leader's epoch it is of."""
        for index, last in lasts.items():
            if last < self._epoch_offset[index]:
                continue  # it had been handed on before
            self.next[index] = max(int(self.next[index]), min(last + 1, int(self.stop[index])))
            self._epoch[index] = epochs.get(index, NO_EPOCH)
            self._epoch_offset[index] = min(last + 1, int(self.next[index]))

    def reach(self, index: int, end: int) -> None:
        """Note that there are no more records up to this end. What lies behind a stop was not looked at."""
        self.next[index] = max(int(self.next[index]), min(end, int(self.stop[index])))

    def refuse_filled(self, row_split: RowSplits, offset: Int64s, epochs: Mapping[int, int]) -> None:
        """Raises DataLossError if there are records, of a newer leader, where there were none: between the
        last record that was read and the next offset. So shows itself a log that lost no more than the marker
        of a transaction."""
        is_filled = (offset >= self._epoch_offset[row_split]) & (offset < self.next[row_split])
        for row in np.flatnonzero(is_filled & (self._epoch[row_split] != NO_EPOCH))[:1].tolist():
            index = int(row_split[row])
            if epochs.get(index, NO_EPOCH) > self._epoch[index]:
                raise cut_log(self._table.ids[index], int(self.next[index]), int(offset[row]))


def _or(value: int | None, otherwise: int) -> int:
    return otherwise if value is None else value


def _longer(known: Int64s, more: Sequence[int]) -> Int64s:
    return np.concatenate([known, np.array(more, np.int64)])
