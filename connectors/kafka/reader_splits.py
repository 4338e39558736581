"""SplitTable: the splits of one reader, by number and by place."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import numpy.typing as npt

from onceflow.connectors.kafka.metadata import PartitionKey
from onceflow.connectors.kafka.split import KafkaSplit
from onceflow.runtime.records import Int64s

RowSplits = npt.NDArray[np.uint16]
"""One number for each record: which of the reader's splits it is from."""


def last_rows(row_split: RowSplits) -> dict[int, int]:
    """The place of each split's last record among these."""
    if not len(row_split):
        return {}
    ends = np.append(np.flatnonzero(np.diff(row_split)), len(row_split) - 1)
    return dict(zip(row_split[ends].tolist(), ends.tolist(), strict=True))


class SplitTable:
    """Splits are only ever added; a split's number is its place in `splits`."""

    def __init__(self) -> None:
        self.splits: list[KafkaSplit] = []
        self.ids: tuple[str, ...] = ()
        self.topics: dict[str, int] = {}
        """Number of each topic: what `of_rows` takes."""
        self._index: dict[PartitionKey, int] = {}
        self._table: RowSplits = np.empty((0, 0), np.uint16)

    def add(self, splits: Sequence[KafkaSplit]) -> None:
        self.splits += splits
        assert len(self.splits) <= np.iinfo(np.uint16).max, "row_split is uint16"
        self.ids = tuple(split.split_id for split in self.splits)
        self._index = {split.key: i for i, split in enumerate(self.splits)}
        self.topics = {topic: i for i, topic in enumerate(sorted({s.topic for s in self.splits}))}
        partitions = 1 + max((split.partition for split in self.splits), default=0)
        self._table = np.zeros((len(self.topics), partitions), np.uint16)
        for (topic, partition), i in self._index.items():
            self._table[self.topics[topic], partition] = i

    def find(self, topic: str | None, partition: int | None) -> int:
        """A split's number; -1 if it is none of ours."""
        return self._index.get((topic, partition), -1)  # type: ignore[arg-type]

    def numbers(self, split_ids: Collection[str]) -> set[int]:
        """The numbers of these splits."""
        return {number for number, split_id in enumerate(self.ids) if split_id in split_ids}

    def of_rows(self, topics: Int64s | None, partitions: Int64s) -> RowSplits:
        """The split of each record, by its topic's number (None: there is only one) and its partition."""
        split: RowSplits = self._table[0 if topics is None else topics, partitions]
        return split
