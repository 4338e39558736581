"""What a sink provides whose output becomes visible by one commit for all its writers together.

A table format (Delta, Iceberg, or a folder with a commit file for each checkpoint) has one commit for each
checkpoint, and not one for each writer. Its writers only pre-commit: they write parts that nobody sees, and
name them in their committables. Once the checkpoint is durable, the driver's committer takes the
committables of all writers and makes them visible in one step.

The engine asks `last_committed` before every `commit`, also before the first of an attempt. So nothing is
guessed after a lost answer or a kill: the system of record says whether it happened.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import pyarrow as pa

from onceflow.runtime.clock import Clock
from onceflow.runtime.contracts.sink import Committable
from onceflow.runtime.contracts.staging import NoFiles, PromisedFiles


@dataclass(frozen=True, slots=True)
class CommitterContext:
    """What a committer gets when it is opened in the driver."""

    job: str
    lineage: str
    """The random id of the job's checkpoint folder, as in SinkContext. Together with `uid` it is the name of
    the ledger: no other job's commits are under it."""
    uid: str
    attempt: int
    restored_checkpoint_id: int
    schema: pa.Schema
    clock: Clock
    files: PromisedFiles = field(default_factory=NoFiles)
    """What the committables of this sink's writers name in their `paths`."""


class SinkCommitter(Protocol):
    """Commits for all writers of one sink. One for each attempt, in the driver; one thread calls it."""

    def last_committed(self) -> int | None:
        """Ask the system of record for the latest checkpoint that was committed under this ledger.

        None: none ever was. The ledger lives as long as the output does, and is written in the same step as
        the output. Raises Retryable if it can't be told now, Fatal if it never will be.
        """
        ...

    def commit(self, checkpoint_id: int, committables: Sequence[Committable]) -> None:
        """Make all of these visible, and the ledger say `checkpoint_id`, in one step.

        Returns when it is known to be done. Raises Retryable if it is known not to be, Indeterminate if
        nobody knows: then `last_committed` is asked again before the next try. Raises Fatal.

        It has to fail if anybody has committed since the latest answer of `last_committed`: an attempt that
        was frozen and wakes up, or a late copy of an earlier try, must not add the output a second time.
        """
        ...

    def close(self) -> None:
        """Let go of everything. What was not committed stays invisible."""
        ...


@runtime_checkable
class SettlingSink(Protocol):
    """A CommittingSink by key whose committer takes rows of one key from several writers.

    It settles which row of a key counts among the committables of all writers, in the order in which it is
    given these. So whoever has no way to bring the rows of a key to one writer may do without.
    """

    @property
    def settles_keys(self) -> bool:
        """Whether this sink, with its options, settles keys in its committer."""
        ...


@runtime_checkable
class CommittingSink(Protocol):
    """A sink with one commit for all its writers.

    Its writers are like any other sink's, with two differences: `recover` gets no committables, since the
    committer has committed them before any slot starts; and `commit(n)` comes when the committer has
    committed n: the writer only forgets what it had kept of it.
    """

    def open_committer(self, context: CommitterContext) -> SinkCommitter:
        """In the driver, at the start of each attempt, after all earlier attempts are fenced in the log."""
        ...
