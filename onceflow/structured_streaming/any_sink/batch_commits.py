"""How a micro-batch of any sink goes out exactly once: the order of the driver's commit.

Spark calls commit for batch N when all its tasks have staged their rows, and again, maybe with other rows and
other partitions, after any crash before its own commit log has N. To a sink batch N is checkpoint N + 1.

1. The ledger of the sink is asked, which fences whoever committed before. If it has a batch that was never
   promised here, it is that of a newer copy of this checkpoint: refused, and nothing is promised.
2. The promise: the committables of one attempt, created in the checkpoint folder for this batch once. An
   attempt that finds one has nothing to say: what is promised is committed.
3. The sink commits, and its ledger says N + 1 in the same step.
4. What only this batch's reruns needed is deleted.

| crash                             | the rerun                                                              |
| --------------------------------- | ---------------------------------------------------------------------- |
| before or while parts are staged  | promises its own                                                       |
| between promise and commit        | finds the promise: commits that one's rows, and drops its own          |
| inside the commit                 | the claim ends it, or waits for it; then the ledger decides            |
| committed, nobody was told        | finds the promise, and the ledger has it: nothing is written           |
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from onceflow.connectors.staged_commits.owner import OwnerCommits
from onceflow.connectors.staged_commits.writer import CommitSettings, TargetSink
from onceflow.connectors.staged_rows import row_files
from onceflow.connectors.waiting import Patience
from onceflow.runtime.clock import SystemClock
from onceflow.runtime.contracts import Committable, CommitterContext, CommittingSink
from onceflow.runtime.errors import Fatal, Fenced, Indeterminate, Retryable
from onceflow.structured_streaming.any_sink.batch_parts import Output, checkpoint_of
from onceflow.structured_streaming.any_sink.promised_batches import PromisedBatches

_OWNER = "0"
_GIVE_UP_AFTER_MS = 120_000
_ANY = 1 << 62


class Commits(Protocol):
    """The commits of one output in one process, whatever its sink is. One thread at a time."""

    def committed(self) -> int:
        """Fence whoever committed before, and say up to which checkpoint it was; 0: nothing is. Waits while
        the system is away."""
        ...

    def commit(self, checkpoint_id: int, committables: Sequence[Committable]) -> int:
        """Make these visible, unless they are; returns what the ledger says when it is known. Called after
        `committed`."""
        ...

    def close(self) -> None: ...


NewPatience = Callable[[str, int], Patience]
"""From who waits, as in "PostgreSQL sink", and for how many ms at the most."""


def open_commits(
    output: Output, batch_id: int, promises: PromisedBatches, new_patience: NewPatience
) -> Commits:
    """A new attempt's. Asks the system nothing yet."""
    attempt = promises.new_attempt(batch_id)
    if isinstance(output.sink, TargetSink):
        done = promises.last_done()  # a ledger that has gone back since is noticed
        last_seen = None if done is None else done.ledger
        # A batch that is run again is no rewind: what the ledger has of it stays.
        context = replace(output.context(batch_id, int(_OWNER), attempt), restored_checkpoint_id=_ANY)
        return _TargetCommits(output.sink.commit_settings(context), output, last_seen, new_patience)
    return _CommitterCommits(output, batch_id, attempt, new_patience)


def commit_batch(
    commits: Commits, promises: PromisedBatches, batch_id: int, mine: Sequence[Committable]
) -> bool:
    """Make this batch visible; returns when it is known to be. Whether it is this attempt's rows that are.

    Raises Fatal if the ledger has what this checkpoint does not know, and what the sink raises; then it may
    be called again.
    """
    checkpoint_id = checkpoint_of(batch_id)
    try:
        committed = commits.committed()
        if committed > checkpoint_id or (committed == checkpoint_id and not promises.has(batch_id)):
            raise Fatal(_ahead(f"the output is written up to batch {committed - 1}", batch_id))
        promised, is_mine = promises.promise(batch_id, mine)
        done = promises.last_done()
        if done is not None and done.batch_id > batch_id:
            raise Fatal(_ahead(f"batch {done.batch_id} was done meanwhile", batch_id))
        if committed < checkpoint_id:
            committed = commits.commit(checkpoint_id, promised)
    except Fenced as error:
        raise Fatal(_ahead("a later attempt has begun to write", batch_id)) from error
    promises.done(batch_id, committed)
    return is_mine


def _ahead(found: str, batch_id: int) -> str:
    return (
        f"{found}, but this query is at batch {batch_id} and does not know of that: its checkpoint is an "
        "older copy, or another driver runs the same query. Nothing was written. Go on from the newest "
        "checkpoint, or start with a new checkpoint folder, which writes again what the source gives"
    )


class _TargetCommits:
    """The commits of a TargetSink: all rows of the batch are one owner's."""

    def __init__(
        self, settings: CommitSettings, output: Output, last_seen: int | None, new_patience: NewPatience
    ) -> None:
        self._files = output.staging
        patience = new_patience(settings.who, settings.give_up_after_ms)
        target = settings.open_target(_OWNER)
        name = f"output {output.uid!r}"
        self._owner = OwnerCommits(name, target, patience, last_seen, settings.keeps_ledger)

    def committed(self) -> int:
        self._owner.claim(_ANY)
        assert self._owner.last_seen is not None, "the claim has read it"
        return self._owner.last_seen

    def commit(self, checkpoint_id: int, committables: Sequence[Committable]) -> int:
        files = [file for each in committables for file in row_files(each)]
        if files:
            self._owner.commit(
                checkpoint_id, lambda: (batch for file in files for batch in file.batches(self._files))
            )
        assert self._owner.last_seen is not None, "it was claimed"
        return self._owner.last_seen

    def close(self) -> None:
        self._owner.close()


class _CommitterCommits:
    """The commits of a CommittingSink: see contracts/committer.py for what its committer promises."""

    def __init__(self, output: Output, batch_id: int, attempt: int, new_patience: NewPatience) -> None:
        assert isinstance(output.sink, CommittingSink), "write_options.py has seen to it"
        self._patience = new_patience("sink", _GIVE_UP_AFTER_MS)
        self._committer = output.sink.open_committer(
            CommitterContext(
                job=output.job,
                lineage=output.lineage,
                uid=output.uid,
                attempt=attempt,
                restored_checkpoint_id=checkpoint_of(batch_id),
                schema=output.schema,
                clock=SystemClock(),
                files=output.staging,
            )
        )

    def committed(self) -> int:
        return self._until_done(lambda: self._committer.last_committed() or 0)

    def commit(self, checkpoint_id: int, committables: Sequence[Committable]) -> int:
        def attempt() -> int:
            committed = self._committer.last_committed() or 0
            if committed < checkpoint_id:
                self._committer.commit(checkpoint_id, committables)
            return max(committed, checkpoint_id)

        return self._until_done(attempt)

    def close(self) -> None:
        self._committer.close()

    def _until_done(self, attempt: Callable[[], int]) -> int:
        while True:
            try:
                found = attempt()
            except (Retryable, Indeterminate) as error:
                self._patience.wait(error)
            else:
                self._patience.reset()
                return found
