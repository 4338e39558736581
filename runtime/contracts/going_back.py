"""Going back: what becomes of output when a job goes on from an older checkpoint than the last one.

`--from N` restores checkpoint `N`, and checkpoint `M`, the last one, is abandoned with all between them. What
they had committed is there. Three things can become of it:

- It is *taken back*: the sink's committer makes the output what it was when N had been committed.
- It is *replaced*: the sink writes by key, and what is written from now on wins.
- It is *doubled*: rows can only be added, so those of N+1 to M stay, and are written again. A user has to
  accept that.

The engine writes a new checkpoint, M+1, with the state and the offsets of N. From then on a ledger that says
M is behind the job, as after any restart, and nothing of the abandoned time can be mistaken for new output.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from onceflow.runtime.contracts.sink import ChangelogSink, Committable, Sink, WentBack


@runtime_checkable
class TakingSource(Protocol):
    """A source that takes what it reads out of the system: a queue. What a completed checkpoint has
    acknowledged can't be read again, so a job that reads from it can't go back."""

    @property
    def takes_what_it_reads(self) -> bool:
        """Whether this source, with its options, takes what it reads out of the system."""
        ...


@runtime_checkable
class TakingBackSink(Protocol):
    """A CommittingSink whose committers are TakingBackCommitters."""

    @property
    def takes_back(self) -> bool:
        """Whether this sink, with its options, can take rows back."""
        ...


@runtime_checkable
class TakingBackCommitter(Protocol):
    """A SinkCommitter that can take back what it has committed."""

    def take_back(self, checkpoint_id: int, went_back: WentBack, committables: Sequence[Committable]) -> None:
        """Make the output what it was when checkpoint `went_back.to` had been committed, and the ledger say
        `checkpoint_id`, which is that of the new checkpoint.

        `committables`: what checkpoint `to` promised; it is committed. Called in the driver when the new
        checkpoint is durable and before a slot starts, right after `last_committed`, and again until that
        says so. It has to fail as `commit` does if anybody has committed since; the rows of others than this
        sink stay. Raises what `commit` raises; Fatal where the output can't be made what it was.
        """
        ...


@runtime_checkable
class TracedSink(Protocol):
    """A sink that can tell where its output of some time lies."""

    def written_since(self, time_ms: int) -> Sequence[Mapping[str, str | int]]:
        """The places, as people look for them, which have all rows that were written since then (wall clock);
        a few that are older may be among them. Raises OnceflowError where it can't be told."""
        ...


@dataclass(frozen=True, slots=True)
class GoingBack:
    """What a job's sinks and sources make of going back. Made of its graph, in the driver."""

    doubling: Sequence[str] = ()
    """The sinks, by uid, whose rows would be written a second time."""
    taking: Sequence[str] = ()
    """The sources, by uid, that can't be read again."""
    traced: Mapping[str, TracedSink] | None = None
    """The sinks, by uid, that can tell where their rows are."""
    accepted: int | None = None
    """The checkpoint after which the user accepts duplicates (`--accept-duplicates-after`)."""


def is_doubled(sink: Sink) -> bool:
    """Whether rows that this sink has written can only be written once more."""
    if isinstance(sink, TakingBackSink) and sink.takes_back:
        return False
    return not (isinstance(sink, ChangelogSink) and sink.takes_kinds)
