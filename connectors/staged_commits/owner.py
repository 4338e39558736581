"""The commits of one owner: a checkpoint's rows go to a Target exactly once. Pure but for what it is given.

Everything rests on one order: whenever anything is in doubt, first claim, which fences all that was begun
before, and only then believe the ledger.

| crash, or a lost answer           | what comes next                                                       |
| --------------------------------- | --------------------------------------------------------------------- |
| before or inside a commit         | the claim ends it; the ledger is lower: the rows are written           |
| committed, the answer was lost    | the claim waits it out; the ledger has it: nothing is written          |
| committed, the slot is killed     | the restored checkpoint's rows are offered again; the ledger has them  |
| a commit of ours still under way  | the claim ends it, or waits for it, and then the ledger decides        |
| an older attempt still lives      | it is fenced: its next commit fails                                    |
| a newer attempt has claimed       | Fenced: go away                                                        |
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa

from onceflow.connectors.staged_commits.target import Target
from onceflow.connectors.waiting import Patience
from onceflow.runtime.errors import DataLossError, Fatal, Indeterminate, Retryable


class OwnerCommits:
    """The commits of one owner in one attempt. One thread at a time."""

    def __init__(
        self,
        name: str,
        target: Target,
        patience: Patience,
        last_seen: int | None,
        keeps_ledger: bool = True,
    ) -> None:
        """`name`: the owner, for messages. `last_seen`: what the ledger said when the restored checkpoint
        was taken; None: it says nothing of that. `keeps_ledger`: see CommitSettings."""
        self._keeps_ledger = keeps_ledger
        self._name = name
        self._target = target
        self._patience = patience
        self._last_seen = last_seen
        self._is_sure = False

    @property
    def last_seen(self) -> int | None:
        """What the ledger said last; goes into each checkpoint."""
        return self._last_seen

    def claim(self, restored_checkpoint_id: int) -> None:
        """Fence earlier attempts. Once per attempt, for the own owner, after what the restored checkpoint
        promised is committed. Raises Fatal if the output is ahead of the checkpoint that the job starts
        from: it would be written again."""

        def attempt() -> None:
            committed = self._committed()
            if committed > restored_checkpoint_id:
                raise Fatal(
                    f"the output of {self._name} is committed up to checkpoint {committed}, but the job "
                    f"starts from checkpoint {restored_checkpoint_id}: it would write that output again. "
                    f"Start from checkpoint {committed} or later, accept it with --accept-duplicates-after "
                    f"{restored_checkpoint_id}, or use a new checkpoint folder"
                )

        self._until_done(attempt)

    def commit(self, checkpoint_id: int, rows: Callable[[], Iterator[pa.RecordBatch]]) -> None:
        """Make a durable checkpoint's rows visible; returns when it is known. `rows` may be asked several
        times, and gives the same each time."""

        def attempt() -> None:
            if self._committed() < checkpoint_id:
                self._is_sure = False
                self._target.commit(checkpoint_id, rows())
                self._is_sure, self._last_seen = True, checkpoint_id

        self._until_done(attempt)

    def close(self) -> None:
        self._target.close()

    def _committed(self) -> int:
        """What the ledger says, from memory while nothing is in doubt."""
        if not self._is_sure:
            ledger = self._target.claim()
            if not self._keeps_ledger:
                ledger = max(ledger, self._last_seen or 0)
            if self._last_seen is not None and ledger < self._last_seen:
                raise DataLossError(
                    f"the ledger of {self._name} says {ledger or 'nothing'}, and it was at {self._last_seen}"
                    ": it was deleted, or the database is an older copy of itself. Whether the output of the "
                    "last checkpoint is there can't be told: look for it, then put the ledger back"
                )
            self._is_sure, self._last_seen = True, ledger
        assert self._last_seen is not None, "it was asked when it was claimed"
        return self._last_seen

    def _until_done(self, attempt: Callable[[], None]) -> None:
        while True:
            try:
                attempt()
            except (Retryable, Indeterminate) as error:
                self._is_sure = False
                self._patience.wait(error)
            else:
                self._patience.reset()
                return
