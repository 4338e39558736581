"""BatchedSource: a source that can be read in batches that are planned before they are read, and read again.

Spark's micro-batches ask for it: the end of a batch is made durable first, and whoever reads the batch, now
or after a crash, has to find the same rows. See structured_streaming/any_source.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from onceflow.runtime.clock import Clock
from onceflow.runtime.contracts.json_values import Json
from onceflow.runtime.contracts.source import SplitState


@dataclass(frozen=True, slots=True)
class BatchLimit:
    """About how much one batch may have, in what a source can tell before it reads; None: no limit. A source
    looks at those that it knows."""

    records: int | None = None
    splits: int | None = None
    """Splits: files, where the source is one of files."""
    bytes: int | None = None
    span_ms: int | None = None
    """A span of the time of arrival, in ms."""


class BatchPlanner(Protocol):
    """Cuts a source into batches. Lives in the driver; its calls may block for seconds; one thread calls it.

    A place is JSON, and says all that is between it and the beginning: a planner remembers nothing that a
    place does not have, so that a new one goes on from a place that an old one gave.
    """

    def first(self) -> Json:
        """The place before all batches. It is asked again after a crash before the first batch was planned,
        and is the same then: a beginning that moves with time is what the first `next` finds."""
        ...

    def next(self, place: Json) -> Json:
        """The place at which the batch ends that begins at this one; the same place: there is nothing new.
        Cheap: what is in the batch is not read for it."""
        ...

    def hold(self) -> None:
        """From now on `next` goes up to what is there at this moment, and then says that there is nothing
        new."""
        ...

    def tasks(self, begin: Json, end: Json) -> Sequence[Sequence[SplitState]]:
        """The batch between two places, of which `end` is what `next(begin)` gave: splits, those of each task
        together. A reader of the source finishes each of them at its end of the batch, and brings the same
        rows however often it is read. Raises DataLossError where they are gone."""
        ...

    def done(self, place: Json) -> None:
        """What is before the place is not asked for any more, by nobody. May be told twice, or never."""
        ...

    def close(self) -> None:
        """Called once, when no more batches are planned."""
        ...


@runtime_checkable
class BatchedSource(Protocol):
    """A source that a BatchPlanner can cut."""

    def open_planner(self, clock: Clock, limit: BatchLimit) -> BatchPlanner:
        """Asks nobody. Raises OptionError for a limit, or an option of the source's, that makes no sense in
        batches."""
        ...
