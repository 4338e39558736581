"""Pure: what `--from N` comes to, in a folder whose job has later checkpoints.

| the folder                               | the job                                                       |
| ---------------------------------------- | ------------------------------------------------------------- |
| N is the last checkpoint                 | goes on from it                                               |
| it has gone back to N before             | goes on from the last one: the same command, after a crash    |
| it has later ones, all output can go back | begins a copy of N, the next checkpoint                      |
| it has later ones, some output can't     | restores N itself; a sink whose ledger is ahead of it refuses |
| it has later ones, a source can't go back | is refused                                                   |
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from onceflow.runtime.checkpoint import events as ev
from onceflow.runtime.checkpoint.log import AttemptStarted
from onceflow.runtime.checkpoint.log_view import LogView
from onceflow.runtime.checkpoint.manifest import CheckpointManifest
from onceflow.runtime.checkpoint.recovery import Finished, NeverStarted, Resumable, derive_job
from onceflow.runtime.contracts.going_back import GoingBack
from onceflow.runtime.contracts.sink import WentBack
from onceflow.runtime.errors import CorruptCheckpointError, OnceflowError, UsageError


@dataclass(frozen=True, slots=True)
class ChosenStart:
    """What an attempt begins with."""

    job: NeverStarted | Resumable | Finished
    goes_back: WentBack | None = None
    """It begins with a copy of `job.latest` and abandons what is later; None: it goes on from it."""
    came_from: int | None = None
    """The checkpoint that it would go on from if the copy that `goes_back` stands for is never written."""

    has_gone_back: WentBack | None = None
    """Set where the choice was followed by an earlier run."""

    @property
    def created(self) -> Resumable | Finished:
        """The job, of which the log has at least that it was created."""
        assert not isinstance(self.job, NeverStarted), "it was created"
        return self.job

    def entry(self, owner: str, now_ms: int, parallelism: int) -> AttemptStarted:
        """What the log gets. The checkpoint in it counts until the attempt has one of its own."""
        assert isinstance(self.job, Resumable), "it begins an attempt"
        latest = self.job.latest
        restored = None if latest is None else latest.checkpoint_id
        if self.goes_back is not None:
            restored = self.came_from
        return AttemptStarted(self.job.next_attempt, restored, owner, now_ms, parallelism)


def chosen_start(view: LogView, chosen: int | None, going: GoingBack) -> ChosenStart:
    """Raises what `derive_job` raises, and UsageError for a choice that can't be followed."""
    if chosen is None:
        return ChosenStart(_marked(derive_job(view), going))
    last = _last(view)
    if last is not None and last.latest is not None and _has_gone_back(last.latest, chosen):
        return ChosenStart(_marked(last, going), has_gone_back=last.latest.went_back)
    job = derive_job(view, chosen)
    if not isinstance(job, Resumable):
        return ChosenStart(job)
    past = job.next_checkpoint_id - 1
    if past == chosen:
        return ChosenStart(job)
    if going.taking:
        raise UsageError(
            f"the job can't go back to checkpoint {chosen}: source {going.taking[0]!r} is a queue, and "
            f"what later checkpoints have acknowledged is no longer in it; leave --from out, or start a new "
            "checkpoint folder"
        )
    if going.doubling and going.accepted is None:
        return ChosenStart(job)
    back = WentBack(chosen, past, is_marked=going.accepted is not None)
    latest = None if last is None else last.latest
    return ChosenStart(job, back, chosen if latest is None else latest.checkpoint_id)


def told(start: ChosenStart, going: GoingBack) -> list[ev.Announce]:
    """What people hear of it: where rows lie that will be written again, as far as sinks can tell; or that
    the job had gone back before."""
    if start.has_gone_back is not None:
        to, copy = start.has_gone_back.to, start.has_gone_back.past + 1
        reason = (
            f"the job has gone back to checkpoint {to} before, and goes on from its last one; --from {copy} "
            f"goes back to the copy of {to}, as long as it is kept"
        )
        return [ev.Announce("warning", {"reason": reason})]
    if start.goes_back is None:
        return []
    assert isinstance(start.job, Resumable), "it goes back"
    back, older = start.goes_back, start.job.latest
    assert older is not None, "it goes back to a checkpoint"
    doubled: dict[str, Any] = {}
    for uid in going.doubling:
        sink = (going.traced or {}).get(uid)
        try:
            doubled[uid] = [] if sink is None else [*map(dict, sink.written_since(older.triggered_ms))]
        except OnceflowError as error:
            doubled[uid] = [{"message": str(error)}]
    fields = {"to": back.to, "past": back.past, "checkpoint_id": back.past + 1, "doubled": doubled}
    return [ev.Announce("went_back", fields)]


def _last(view: LogView) -> Resumable | Finished | None:
    """What the job would go on from by itself; None if that can't be read, which is why one goes back."""
    try:
        job = derive_job(view)
    except CorruptCheckpointError:
        return None
    return None if isinstance(job, NeverStarted) else job


def _has_gone_back(latest: CheckpointManifest, chosen: int) -> bool:
    return latest.went_back is not None and latest.went_back.to == chosen


def _marked(
    job: NeverStarted | Resumable | Finished, going: GoingBack
) -> NeverStarted | Resumable | Finished:
    """Rows are marked in runs whose command accepts duplicates, and in no others."""
    if isinstance(job, NeverStarted) or job.latest is None or job.latest.went_back is None:
        return job
    back = replace(job.latest.went_back, is_marked=going.accepted == job.latest.went_back.to)
    return replace(job, latest=replace(job.latest, went_back=back))
