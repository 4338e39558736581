"""The committers of those sinks that commit in the driver, once for all their writers.

The order, and what a crash leaves in each gap:

1. The manifest of checkpoint n is durable; it names what all writers have pre-committed. Crash: the next
   attempt begins with `restore`, which does 2 and 3 for the checkpoint that it restores.
2. The committer is asked what it has committed. n: then it was done before, and nobody was told.
3. It commits. Crash, or no answer: as after 1, or after 2 if the commit landed.

A checkpoint that goes back is committed in the same order, by taking back: see contracts/going_back.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from onceflow.runtime.checkpoint.manifest import CheckpointManifest
from onceflow.runtime.clock import Clock
from onceflow.runtime.contracts import (
    Committable,
    CommitterContext,
    CommittingSink,
    PromisedFiles,
    SinkCommitter,
)
from onceflow.runtime.contracts.going_back import TakingBackCommitter
from onceflow.runtime.errors import DataLossError, Fenced
from onceflow.runtime.graph.job_graph import JobGraph, SinkNode


class Committers:
    """All committers of a job. One thread calls them."""

    def __init__(self, graph: JobGraph, clock: Clock, files: PromisedFiles) -> None:
        """`files`: the staged files of the checkpoint folder."""
        self._clock = clock
        self._files = files
        self._sinks: dict[str, tuple[SinkNode, CommittingSink]] = {
            node.uid: (node, node.sink) for node in graph.sinks() if isinstance(node.sink, CommittingSink)
        }
        self._open: dict[str, SinkCommitter] = {}

    def __bool__(self) -> bool:
        """Whether any sink commits in the driver."""
        return bool(self._sinks)

    def restore(self, attempt: int, manifest: CheckpointManifest) -> CheckpointManifest:
        """An attempt starts from this checkpoint: commit what it promised. What is left of the manifest is
        what the slots have to commit.

        Raises what `commit` raises, and DataLossError if the output is ahead of the checkpoint.
        """
        self.close()
        for uid, (node, sink) in self._sinks.items():
            context = CommitterContext(
                job=manifest.job,
                lineage=manifest.lineage,
                uid=uid,
                attempt=attempt,
                restored_checkpoint_id=manifest.checkpoint_id,
                schema=node.schema,
                clock=self._clock,
                files=self._files,
            )
            self._open[uid] = committer = sink.open_committer(context)
            last_id = committer.last_committed()
            if last_id is not None and last_id > manifest.checkpoint_id:
                raise DataLossError(
                    f"sink {uid!r} has committed checkpoint {last_id}, and the job was started from "
                    f"checkpoint {manifest.checkpoint_id}: its output since then would be written again; "
                    f"start from checkpoint {last_id}, accept it with --accept-duplicates-after "
                    f"{manifest.checkpoint_id}, or write to another place"
                )
        if manifest.promised_id == manifest.checkpoint_id:
            self.commit(manifest)
        else:
            self._go_back(manifest)
        return replace(manifest, committables=[c for c in manifest.committables if c.uid not in self._sinks])

    def commit(self, manifest: CheckpointManifest) -> None:
        """The checkpoint is durable: commit it for each of the sinks; those that have done so are asked only.

        Raises Retryable and Indeterminate (try again), Fenced, Fatal.
        """
        for uid, committer in self._open.items():
            if promised := [c for c in manifest.committables if c.uid == uid]:
                commit_once(committer, uid, manifest.checkpoint_id, promised)

    def _go_back(self, manifest: CheckpointManifest) -> None:
        """This checkpoint is a copy of an older one: the output becomes what it was when that was committed,
        as far as sinks can take theirs back. Raises what `commit` raises."""
        back = manifest.went_back
        assert back is not None, "it is a copy"
        for uid, committer in self._open.items():
            promised = [c for c in manifest.committables if c.uid == uid]
            last_id = committer.last_committed()
            if promised and (last_id is None or last_id < back.to):
                committer.commit(back.to, promised)
                last_id = committer.last_committed()
            if isinstance(committer, TakingBackCommitter) and last_id != manifest.checkpoint_id:
                committer.take_back(manifest.checkpoint_id, back, promised)

    def close(self) -> None:
        while self._open:
            self._open.popitem()[1].close()


def commit_once(
    committer: SinkCommitter, uid: str, checkpoint_id: int, promised: Sequence[Committable]
) -> None:
    """Commit, unless the system of record says that it was done."""
    last_id = committer.last_committed()
    if last_id is not None and last_id > checkpoint_id:
        raise Fenced(f"a newer attempt has committed checkpoint {last_id} of sink {uid!r}")
    if last_id != checkpoint_id:
        committer.commit(checkpoint_id, promised)
