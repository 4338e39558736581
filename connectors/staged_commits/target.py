"""Target: one owner's place in the system that a sink writes to, with its ledger."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa


class Target(Protocol):
    """One owner's place in a system that is written to, for one attempt of the job. One thread at a time.

    An owner is a subtask of a sink. Its ledger says up to which checkpoint its rows are there; it lies in the
    same system and changes in the same step as the rows, and lives as long as they do. No two jobs, no two
    sinks of a job and no two owners share one.

    A Target connects when it is first asked, and anew after any error: an error leaves nothing open.
    """

    def claim(self) -> int:
        """Fence whoever wrote under this ledger before, and then say up to which checkpoint it is committed;
        0: nothing is, also where there was no ledger until now.

        When it returns, nothing that an earlier attempt began, or an earlier call of this one whose answer
        was lost, can become visible any more. Raises Fenced if a newer attempt has claimed the ledger,
        Retryable or Indeterminate, then it is called again, and Fatal if the output can't be written as
        it is: no table, no right to write, other columns.
        """
        ...

    def commit(self, checkpoint_id: int, rows: Iterator[pa.RecordBatch]) -> None:
        """Make these rows visible, and the ledger say `checkpoint_id`, in one step.

        Called only if the answer of `claim`, or the last commit, is lower. Raises Retryable if it is
        known not to be done, Indeterminate if nobody knows (`claim` is asked before the next try), Fenced if
        a newer attempt has claimed the ledger, and Fatal if these rows can't be written, whenever they are
        tried.
        """
        ...

    def close(self) -> None:
        """Let go of everything; what is not committed stays invisible."""
        ...


@dataclass(frozen=True, slots=True)
class TargetContext:
    """The owner and the attempt that a Target is opened for."""

    job: str
    lineage: str
    """See SinkContext. Together with `uid` and `owner` it names the ledger."""
    uid: str
    owner: str
    attempt: int
    schema: pa.Schema
    """The columns of the rows that `commit` gets; with a key of the sink's, KIND is the last of them."""

    @property
    def ledger(self) -> str:
        """The name of the ledger: no other job, sink or owner has it."""
        return f"{self.lineage}/{self.uid}/{self.owner}"


class TransactionalStore(Protocol):
    """A system that commits rows and a ledger in one step. Immutable, picklable, opens nothing when it is
    made."""

    def check(self, schema: pa.Schema, uid: str) -> None:
        """When the graph is built: raise GraphError if rows of this schema can't be written. Asks nobody."""
        ...

    def open_target(self, context: TargetContext) -> Target:
        """Called in a slot, once for each attempt and owner. Connects to nothing yet."""
        ...
