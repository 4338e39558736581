"""HybridReader: the readers of several sources as one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from onceflow.connectors.hybrid.stages import inner, number_of, outer, outer_id, then_of
from onceflow.runtime.contracts import (
    Fetch,
    ForgettingReader,
    PausableReader,
    ReaderContext,
    SourceReader,
    SplitState,
)
from onceflow.runtime.errors import Fatal


class HybridReader:
    """A SourceReader and a ForgettingReader, and a PausableReader where all of its readers are. A source's
    reader is opened with the first split of it, and closed when the last one is forgotten."""

    def __init__(
        self,
        open_reader: Callable[[int, ReaderContext], SourceReader],
        schema: pa.Schema,
        context: ReaderContext,
    ) -> None:
        """`open_reader`: of the source with this number. `schema`: of the rows, whose columns each has."""
        self._open_reader = open_reader
        self._schema = schema
        self._context = context
        self._readers: dict[int, SourceReader] = {}
        self._splits: dict[str, SplitState] = {}
        """All that were added and not forgotten, as they were added."""
        self._unfinished: set[str] = set()

    def add_splits(self, splits: Sequence[SplitState]) -> None:
        for split in splits:
            self._splits[split.split_id] = split
            self._unfinished.add(split.split_id)
            self._reader(number_of(split.split_id)).add_splits([inner(split)])

    def poll(self, timeout_ms: int, records_max: int) -> Fetch | None:
        number = min(map(number_of, self._unfinished), default=None)
        if number is None:
            return None
        fetch = self._readers[number].poll(timeout_ms, records_max)
        if fetch is None:
            return None
        if self._context.with_timestamp and fetch.timestamp_ms is None:
            raise Fatal(
                f"source {self._context.uid!r}: event time is the record's timestamp, which the records of "
                f"source number {number + 1} don't have: give event_time= a column that all of them have"
            )
        outer_fetch = self._outer(number, fetch)
        self._unfinished -= outer_fetch.finished
        return outer_fetch

    def snapshot(self) -> Sequence[SplitState]:
        return [
            outer(number, split, then_of(self._splits[outer_id(number, split.split_id)]))
            for number, reader in self._readers.items()
            for split in reader.snapshot()
            if outer_id(number, split.split_id) in self._splits
        ]

    def publish_offsets(self, splits: Sequence[SplitState]) -> None:
        for number, reader in self._readers.items():
            reader.publish_offsets([inner(split) for split in splits if number_of(split.split_id) == number])

    def forget_splits(self, split_ids: Collection[str]) -> None:
        for split_id in split_ids:
            self._splits.pop(split_id, None)
        for number, reader in [*self._readers.items()]:
            if not any(number_of(split_id) == number for split_id in self._splits):
                del self._readers[number]
                reader.close()
            elif isinstance(reader, ForgettingReader):
                prefix = outer_id(number, "")
                reader.forget_splits([s.removeprefix(prefix) for s in split_ids if s.startswith(prefix)])

    def pause_splits(self, split_ids: Collection[str]) -> None:
        """See PausableReader; `HybridSource.can_pause` says whether it may be called."""
        for reader, inside in self._pausable(split_ids):
            reader.pause_splits(inside)

    def resume_splits(self, split_ids: Collection[str]) -> None:
        """See PausableReader."""
        for reader, inside in self._pausable(split_ids):
            reader.resume_splits(inside)

    def _pausable(self, split_ids: Collection[str]) -> Iterator[tuple[PausableReader, list[str]]]:
        for number in sorted(set(map(number_of, split_ids))):
            reader, prefix = self._readers[number], outer_id(number, "")
            assert isinstance(reader, PausableReader), reader
            yield reader, [each.removeprefix(prefix) for each in split_ids if number_of(each) == number]

    def close(self) -> None:
        for reader in self._readers.values():
            reader.close()

    def _reader(self, number: int) -> SourceReader:
        if number not in self._readers:
            self._readers[number] = self._open_reader(number, self._context)
        return self._readers[number]

    def _outer(self, number: int, fetch: Fetch) -> Fetch:
        def ids(split_ids: Iterable[str]) -> frozenset[str]:
            return frozenset(outer_id(number, split_id) for split_id in split_ids)

        watermarks: Mapping[str, int] = {outer_id(number, s): at for s, at in fetch.watermarks.items()}
        columns = [fetch.records.column(name) for name in self._schema.names]
        records = (
            pa.RecordBatch.from_arrays(columns, schema=self._schema) if columns else fetch.records.select([])
        )
        return replace(
            fetch,
            records=records,
            splits=tuple(outer_id(number, split_id) for split_id in fetch.splits),
            at_end=ids(fetch.at_end),
            finished=ids(fetch.finished),
            watermarks=watermarks,
        )
