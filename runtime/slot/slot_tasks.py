"""SlotTasks: the tasks of one slot, and what is said to all of them."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass

from onceflow.runtime.contracts import AcknowledgingReader, SinkWriter, SourceReader
from onceflow.runtime.functions.metrics import MetricRegistry
from onceflow.runtime.operators.operator import Operator
from onceflow.runtime.slot.source_task import SourceTask
from onceflow.runtime.slot.task import Task
from onceflow.runtime.slot.watermark_alignment import Lowest, lowest


@dataclass(frozen=True, slots=True)
class SlotTasks:
    """The tasks of a slot, in topological order, and the parts of them that the slot speaks to."""

    tasks: list[Task]
    heads: list[str]
    """The uid of each task's head, for people."""
    sources: Mapping[str, SourceTask]
    readers: Mapping[str, SourceReader]
    writers: Mapping[str, SinkWriter]
    operators: Mapping[str, Operator]
    metrics: MetricRegistry
    """The user's own."""

    def commit(self, checkpoint_id: int) -> None:
        """The checkpoint is durable: sinks commit it, then readers acknowledge it. On the commit thread."""
        for writer in self.writers.values():
            writer.commit(checkpoint_id)
        for reader in self.readers.values():
            if isinstance(reader, AcknowledgingReader):
                reader.on_completed(checkpoint_id)

    def resume(self, checkpoint_id: int) -> None:
        """All slots have their snapshots of this checkpoint."""
        for source in self.sources.values():
            source.resume(checkpoint_id)

    def drain(self) -> None:
        """The sources shall end."""
        for source in self.sources.values():
            source.drain()

    def abort(self, checkpoint_id: int) -> None:
        """This checkpoint will not be."""
        for task in self.tasks:
            task.abort_checkpoint(checkpoint_id)

    def align(self, lowest_of: Lowest) -> None:
        """Take in how far the slowest split of all slots is, by watermark alignment group."""
        for source in self.sources.values():
            source.align(lowest_of)

    @property
    def lowest_watermarks(self) -> Lowest:
        """How far the slowest split of this slot is, by watermark alignment group; empty: there is none."""
        told = [source.lowest_watermark for source in self.sources.values()]
        groups = {group for each in told for group in each}
        return {group: lowest([each[group] for each in told if group in each]) for group in groups}

    @property
    def has_paused(self) -> bool:
        """Whether splits wait for slower ones."""
        return any(source.counters.paused_splits for source in self.sources.values())

    @property
    def held(self) -> list[str]:
        """Which splits wait for slower ones, and for which event time waits, for people. From any thread."""
        said = [text for source in self.sources.values() for text in (source.paused, source.silent)]
        return [text for text in said if text]

    @property
    def wake_at_ms(self) -> int | None:
        """When, by `Clock.now_ms`, a task has something to do even if no input comes. None: never."""
        times = [at_ms for task in self.tasks if (at_ms := task.wake_at_ms) is not None]
        return min(times, default=None)

    def close(self) -> None:
        """Let go of consumers, producers and files. Never raises: the attempt is over anyway."""
        closes = [part.close for part in self.readers.values()]
        closes += [part.close for part in self.writers.values()]
        closes += [part.close for part in self.operators.values()]
        for close in closes:
            try:
                close()
            except Exception as error:
                print(f"onceflow: {close!r} failed: {error}", file=sys.stderr)  # noqa: T201 - the executor's log
