"""TwoPhaseWriter: rows go to the database at the barrier, in a transaction that is prepared there, and is
committed when the checkpoint is durable.

The order, for a checkpoint n of one subtask, and what a crash leaves in each gap:

1. In `stage`: a transaction with all rows that are not committed, and the ledger at n; then PREPARE. Crash:
   the next attempt finds a prepared transaction of a later checkpoint than the one it restores, and rolls it
   back.
2. The manifest of n is durable, and names the transaction. Crash: the next attempt commits it by that name.
3. COMMIT PREPARED. Crash, or no answer: it is not there any more, and the ledger says n.

A checkpoint that is aborted has its rows still here, in memory or in files: the next one rolls its
transaction back, and writes them anew with its own. A ledger's row is locked while its transaction is
prepared, so that is settled before the ledger is claimed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from onceflow.connectors.postgres.target import PostgresTarget
from onceflow.connectors.recovery import Recovery
from onceflow.connectors.staged_rows import StagedRowsWriter
from onceflow.connectors.waiting import WaitForSystem
from onceflow.runtime.contracts import Committable, PreCommit, SinkContext
from onceflow.runtime.errors import DataLossError, Fatal, Indeterminate, Retryable
from onceflow.runtime.records import Records

_CLOSE_S = 5.0
_RECOVERY_EXTRA_S = 60.0


class TwoPhaseWriter:
    """See the module, and contracts.SinkWriter."""

    def __init__(
        self, context: SinkContext, open_target: Callable[[str], PostgresTarget], give_up_after_ms: int
    ) -> None:
        self._context = context
        self._open_target = open_target
        self._rows = StagedRowsWriter(context)
        self._closed = threading.Event()
        self._in_use = threading.Lock()
        """Around all that uses a target: `stage` is called on another thread than `commit`."""
        self._recovery = Recovery(context.uid, give_up_after_ms / 1000 + _RECOVERY_EXTRA_S)
        self._patience = WaitForSystem(
            "PostgreSQL sink", context.clock, context.on_wait, give_up_after_ms, self._closed
        )
        self._own = open_target(str(context.subtask))
        self._committed = context.restored_checkpoint_id
        """The latest checkpoint that is durable and done: all that is prepared later is not promised."""
        self._ledger: int | None = None
        """What the ledger said last."""
        self._prepared: tuple[int, str] | None = None
        """The checkpoint and the name of the transaction that waits."""

    def recover(self, committables: Sequence[Committable]) -> None:
        with self._recovery.under_way(), self._in_use:
            own = str(self._context.subtask)
            for committable in committables:
                if committable.owner != own:
                    self._settle_other(committable.owner, committable)
            mine = next((each for each in committables if each.owner == own), None)
            self._ledger = self._settle_promised(self._own, own, mine)
            if self._ledger > self._committed:
                raise Fatal(
                    f"the output of sink {self._context.uid!r}, subtask {own}, is committed up to checkpoint "
                    f"{self._ledger}, but the job starts from checkpoint {self._committed}: it would write "
                    f"that output again. Start from checkpoint {self._ledger} or later, or in a new "
                    "checkpoint folder"
                )
            if self._context.subtask == 0:
                settled = {committable.owner for committable in committables}
                for owner in self._own.other_owners(self._context.parallelism):
                    if owner not in settled:
                        self._settle_other(owner, None)

    def write(self, records: Records) -> None:
        self._rows.write(records)

    def pre_commit(self, checkpoint_id: int) -> PreCommit:
        self._rows.pre_commit(checkpoint_id)
        return _Promise(self, checkpoint_id)

    def stage(self, checkpoint_id: int) -> Committable:
        """Prepare a checkpoint's transaction: what its PreCommit does."""
        self._recovery.wait()
        with self._in_use:
            if self._closed.is_set():
                raise Retryable(f"sink {self._context.uid!r} is closed")
            name = self._prepare(checkpoint_id)
        payload = {"prepared": name, "ledger": self._ledger}
        return Committable(self._context.uid, str(self._context.subtask), checkpoint_id, payload)

    def commit(self, checkpoint_id: int) -> None:
        with self._in_use:
            if self._closed.is_set():
                raise Retryable(f"sink {self._context.uid!r} is closed")
            if self._prepared is not None and self._prepared[0] <= checkpoint_id:
                self._commit(*self._prepared)
                self._prepared = None
            elif next(self._rows.rows(checkpoint_id), None) is not None:
                self._own.settle(None, self._committed)
                raise Retryable(
                    f"checkpoint {checkpoint_id} of sink {self._context.uid!r} was not prepared: try it again"
                )
            self._committed = max(self._committed, checkpoint_id)
        self._rows.forget(checkpoint_id)

    def close(self) -> None:
        """What is prepared stays, for the next attempt to commit or to roll back."""
        self._closed.set()
        self._recovery.close()
        if self._in_use.acquire(timeout=_CLOSE_S):
            self._own.close()
            self._in_use.release()

    def _prepare(self, checkpoint_id: int) -> str | None:
        """Returns None if there is nothing to commit."""
        is_sure = self._prepared is None
        while True:
            try:
                if not is_sure:  # an aborted checkpoint's is there, or nobody knows what is
                    self._ledger = self._own.settle(None, self._committed)
                    self._prepared, is_sure = None, True
                if next(self._rows.rows(checkpoint_id), None) is None:
                    return None
                name = self._own.prepare(checkpoint_id, self._rows.rows(checkpoint_id))
            except (Retryable, Indeterminate) as error:
                is_sure = False
                self._patience.wait(error)
            else:
                self._patience.reset()
                self._prepared = (checkpoint_id, name)
                return name

    def _commit(self, checkpoint_id: int, name: str) -> None:
        try:
            self._own.commit_prepared(name)
            self._ledger = checkpoint_id
        except Indeterminate:
            self._ledger = self._until_settled(self._own, name, checkpoint_id)
            self._check(checkpoint_id, self._ledger, name)

    def _settle_other(self, owner: str, committable: Committable | None) -> None:
        target = self._open_target(owner)
        try:
            self._settle_promised(target, owner, committable)
        finally:
            target.close()

    def _settle_promised(self, target: PostgresTarget, owner: str, committable: Committable | None) -> int:
        promised = committable.payload["prepared"] if committable is not None else None
        name = promised if isinstance(promised, str) else None
        ledger = self._until_settled(target, name, self._committed)
        if committable is not None:
            last_seen = committable.payload["ledger"]
            expected = committable.checkpoint_id if name else last_seen if isinstance(last_seen, int) else 0
            self._check(expected, ledger, f"subtask {owner}: {name or 'nothing'}")
        return ledger

    def _until_settled(self, target: PostgresTarget, promised: str | None, after: int) -> int:
        while True:
            try:
                ledger = target.settle(promised, after)
            except (Retryable, Indeterminate) as error:
                self._patience.wait(error)
            else:
                self._patience.reset()
                return ledger

    def _check(self, expected: int, ledger: int, what: str) -> None:
        if ledger < expected:
            raise DataLossError(
                f"sink {self._context.uid!r}, {what} was promised for checkpoint {expected}, and the ledger "
                f"says {ledger or 'nothing'}: somebody has rolled the prepared transaction back, or the "
                "database is an older copy of itself. The output of that checkpoint is not there: start from "
                "an earlier checkpoint, in a database as it was then"
            )


@dataclass(frozen=True, slots=True)
class _Promise:
    """See contracts.PreCommit."""

    writer: TwoPhaseWriter
    checkpoint_id: int

    def stage(self) -> Committable:
        return self.writer.stage(self.checkpoint_id)
