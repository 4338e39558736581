"""Target: one owner's place in the system that a sink writes to, with its ledger."""

from __future__ import annotations

from collections.abc import Iterator
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
