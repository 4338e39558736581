"""Sources and queues that are wrong in one way each, and the checks that have to notice."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from onceflow.runtime.contracts import Fetch, Json, SplitState
from onceflow.runtime.errors import DataLossError
from onceflow.runtime.testing.connectors.folder_queue import FolderQueue, QueueReader, add_message
from onceflow.runtime.testing.connectors.folder_source import (
    FolderEnumerator,
    FolderReader,
    FolderSource,
    add_file,
)
from onceflow.testing.kit import QueueKit, SourceKit

SCHEMA = pa.schema([("n", pa.int64())])


class NamesTwice(FolderEnumerator):
    def initial_splits(self) -> Sequence[SplitState]:
        return [*super().initial_splits(), *super().initial_splits()]


class RestoresNothing(FolderEnumerator):
    def check_restored(self, splits: Sequence[SplitState]) -> None:
        raise DataLossError("a restore is not known here")


class FindsFinishedAgain(FolderEnumerator):
    def discover_unfinished(self, known: frozenset[str], finished: Json) -> Sequence[SplitState]:
        return super().discover_unfinished(known, None)


class FindsNothingBehindTheFirst(FolderEnumerator):
    def discover_unfinished(self, known: frozenset[str], finished: Json) -> Sequence[SplitState]:
        return [] if finished else super().discover_unfinished(known, finished)


class NamesByProcess(FolderEnumerator):
    def initial_splits(self) -> Sequence[SplitState]:
        return [
            replace(split, split_id=f"{split.split_id} of {os.getpid()}")
            for split in super().initial_splits()
        ]


class ReadsNoRows(FolderReader):
    def poll(self, timeout_ms: int, records_max: int) -> Fetch | None:
        fetch = super().poll(timeout_ms, 1_000)
        assert fetch is not None
        return replace(fetch, records=fetch.records.slice(0, 0), row_split=fetch.row_split[:0])


class StartsFromTheBeginning(FolderReader):
    def snapshot(self) -> Sequence[SplitState]:
        return [replace(split, position={"next_byte": 0}) for split in super().snapshot()]


class BeginsAnewWithEachSplit(FolderReader):
    def add_splits(self, splits: Sequence[SplitState]) -> None:
        super().add_splits(splits)
        self._open = list(self._next_byte)
        self._next_byte = dict.fromkeys(self._next_byte, 0)


class SharesItsPositions(FolderReader):
    """What a snapshot holds are the reader's own."""

    def add_splits(self, splits: Sequence[SplitState]) -> None:
        super().add_splits(splits)
        self.shared: dict[str, dict[str, Json]] = {split_id: {} for split_id in self._next_byte}

    def poll(self, timeout_ms: int, records_max: int) -> Fetch | None:
        fetch = super().poll(timeout_ms, records_max)
        self.snapshot()
        return fetch

    def snapshot(self) -> Sequence[SplitState]:
        for split_id, at in self._next_byte.items():
            self.shared[split_id]["next_byte"] = at
        return [SplitState(split_id, position) for split_id, position in self.shared.items()]


class HasOtherTypes(FolderReader):
    def poll(self, timeout_ms: int, records_max: int) -> Fetch | None:
        fetch = super().poll(timeout_ms, records_max)
        assert fetch is not None
        narrow = pa.RecordBatch.from_pylist(fetch.records.to_pylist(), pa.schema([("n", pa.int32())]))
        return replace(fetch, records=narrow)


class KeepsItsPositions(FolderReader):
    """A position is a key of what this process remembers."""

    memory: ClassVar[dict[str, int]] = {}

    def snapshot(self) -> Sequence[SplitState]:
        taken = super().snapshot()
        self.memory.update({split.split_id: split.position["next_byte"] for split in taken})
        return [replace(split, position={"next_byte": -1}) for split in taken]

    def add_splits(self, splits: Sequence[SplitState]) -> None:
        super().add_splits(
            [
                replace(split, position={"next_byte": self.memory.get(split.split_id, 0)})
                if split.position["next_byte"] == -1
                else split
                for split in splits
            ]
        )


class NeverPauses(FolderReader):
    def pause_splits(self, split_ids: Collection[str]) -> None:
        pass


class BeginsAnewWhenResumed(FolderReader):
    """The first time."""

    def resume_splits(self, split_ids: Collection[str]) -> None:
        if set(split_ids) <= self._paused and any(self._next_byte[name] for name in split_ids):
            self._next_byte.update(dict.fromkeys(split_ids if not hasattr(self, "again") else (), 0))
            self.again = True
        super().resume_splits(split_ids)


class NoPauses:
    """A FolderReader without its pauses."""

    def __init__(self, source: FolderSource) -> None:
        reader = FolderReader(source)
        self.add_splits, self.poll, self.snapshot = reader.add_splits, reader.poll, reader.snapshot
        self.publish_offsets, self.close, self.forget_splits = (
            reader.publish_offsets,
            reader.close,
            reader.forget_splits,
        )


class SaysThatItPauses(FolderSource):
    def open_reader(self, context: Any) -> Any:
        return NoPauses(self)


class NeverForgets(FolderReader):
    def forget_splits(self, split_ids: Collection[str]) -> None:
        pass


class RemembersAll(FolderSource):
    def add_finished(self, finished: Json, splits: Sequence[SplitState]) -> Json:
        found: Any = super().add_finished(finished, splits)
        kept = [[split.split_id, dict(split.position), "read to its end"] for split in splits]
        return {**found, "kept": [*(finished or {}).get("kept", []), *kept]}  # type: ignore[union-attr]


class ProjectsNothing(FolderSource):
    def project(self, columns: frozenset[str]) -> FolderSource:
        return replace(self, schema=pa.schema([("n", pa.int64()), ("m", pa.int64())]))


class BrokenSourceKit(SourceKit):
    __test__ = False
    in_new_processes = False
    part: ClassVar[Any] = FolderReader

    def prepare(self) -> None:
        for number, rows in enumerate(([1, 2, 3], [], [4], list(range(5, 15))), 1):
            add_file(Path(self.folder), number, [{"n": n} for n in rows])

    def source(self) -> FolderSource:
        broken = self.part
        if issubclass(broken, FolderSource):
            return broken(self.folder, SCHEMA, is_bounded=True)  # type: ignore[no-any-return]
        part = "open_reader" if issubclass(broken, FolderReader) else "open_enumerator"
        made = type("Broken", (FolderSource,), {part: lambda source, *_: broken(source)})
        return made(self.folder, SCHEMA, is_bounded=True)


class NamesByProcessKit(BrokenSourceKit):
    in_new_processes = True
    part = NamesByProcess


class KeepsItsPositionsKit(BrokenSourceKit):
    in_new_processes = True
    part = KeepsItsPositions


SOURCE_KILLERS: dict[Any, str] = {
    NamesTwice: "splits_are_named_once_and_are_json",
    ReadsNoRows: "every_split_is_read_to_its_end",
    StartsFromTheBeginning: "reading_goes_on_exactly_from_every_snapshot splits_may_go_to_other_readers",
    BeginsAnewWithEachSplit: "splits_may_be_added_one_by_one",
    SharesItsPositions: "a_snapshot_does_not_change_afterwards",
    HasOtherTypes: "all_rows_have_the_columns_of_the_source",
    ProjectsNothing: "a_projection_has_the_same_rows",
    RestoresNothing: "what_was_just_read_can_be_restored",
    NamesByProcessKit: "a_new_process_finds_the_same_splits",
    KeepsItsPositionsKit: "a_new_process_reads_on",
    FindsFinishedAgain: """finished_splits_are_not_discovered_again
        splits_finish_in_any_order_and_may_be_told_twice""",
    FindsNothingBehindTheFirst: """finished_splits_are_not_discovered_again
        splits_finish_in_any_order_and_may_be_told_twice""",
    RemembersAll: "what_is_remembered_is_smaller_than_what_is_forgotten",
    NeverForgets: "a_reader_forgets_finished_splits",
    NeverPauses: "a_paused_split_brings_nothing_until_it_is_resumed",
    BeginsAnewWhenResumed: "each_split_may_be_paused_between_any_two_polls",
    SaysThatItPauses: "who_says_that_its_readers_pause_has_such",
}

# --- Queues ---------------------------------------------------------------------------------------------


class AcknowledgesAtTheBarrier(QueueReader):
    def on_barrier(self, checkpoint_id: int) -> None:
        super().on_barrier(checkpoint_id)
        frozen = dict(self._frozen)
        super().on_completed(checkpoint_id)
        self._frozen = frozen


class AcknowledgesAllThereIs(QueueReader):
    def on_completed(self, checkpoint_id: int) -> None:
        self._frozen[checkpoint_id] = {name for names in self._delivered.values() for name in names}
        super().on_completed(checkpoint_id)


class ForgetsAborted(QueueReader):
    def on_barrier(self, checkpoint_id: int) -> None:
        earlier = {name for names in self._frozen.values() for name in names}
        super().on_barrier(checkpoint_id)
        self._frozen[checkpoint_id] -= earlier


class ReadsAgain(QueueReader):
    """What the restored checkpoint counts is read a second time."""

    def add_splits(self, splits: Sequence[SplitState]) -> None:
        super().add_splits([replace(split, position={"delivered": []}) for split in splits])


class TakesWhatItReads(QueueReader):
    def poll(self, timeout_ms: int, records_max: int) -> Fetch | None:
        fetch = super().poll(timeout_ms, records_max)
        for names in self._delivered.values():
            for name in names:
                (self._folder / name).unlink(missing_ok=True)
        return fetch


class BrokenQueueKit(QueueKit):
    __test__ = False
    in_new_processes = False
    part: ClassVar[Any] = QueueReader

    def prepare(self) -> None:
        for n in range(9):
            add_message(Path(self.folder), f"message-{n}", {"n": n})

    def source(self) -> FolderQueue:
        broken = self.part
        made = type("Broken", (FolderQueue,), {"open_reader": lambda source, context: broken(source)})
        return made(self.folder, SCHEMA, splits=3, is_bounded=True)

    def waiting(self) -> int:
        return len(list(Path(self.folder).glob("*.json")))


QUEUE_KILLERS: dict[Any, str] = {
    AcknowledgesAtTheBarrier: "nothing_is_acknowledged_before_its_checkpoint_is_complete",
    AcknowledgesAllThereIs: "what_is_read_after_the_barrier_is_not_acknowledged",
    ForgetsAborted: "an_aborted_checkpoint_is_acknowledged_with_the_next",
    ReadsAgain: "what_comes_again_is_left_out_and_acknowledged",
    TakesWhatItReads: "what_was_read_without_a_checkpoint_comes_again",
}
