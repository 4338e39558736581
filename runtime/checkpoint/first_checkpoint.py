"""Pure: the checkpoint with which a job's output begins, the first one or one that goes back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from onceflow.runtime.checkpoint.manifest import CheckpointManifest
from onceflow.runtime.checkpoint.recovery import Resumable
from onceflow.runtime.checkpoint.state_fits import Program
from onceflow.runtime.contracts import SplitProgress
from onceflow.runtime.contracts.sink import WentBack


def initial_checkpoint(
    job: Resumable,
    program: Program,
    parallelism: int,
    splits: Mapping[str, Sequence[SplitProgress]],
    saved: CheckpointManifest | None,
    now_ms: int,
) -> CheckpointManifest:
    """Checkpoint 0. `saved`: what a savepoint holds, with its files in this folder; None: there is none."""
    manifest = CheckpointManifest(
        job=job.job,
        lineage=job.lineage,
        attempt=job.next_attempt,
        checkpoint_id=0,
        triggered_ms=now_ms,
        completed_ms=now_ms,
        parallelism=parallelism,
        max_parallelism=program.max_parallelism,
        splits=splits,
        operators=program.described,
    )
    if saved is None:
        return manifest
    return replace(manifest, states=saved.states, finished=saved.finished, total_bytes=saved.total_bytes)


def copy_of(manifest: CheckpointManifest, back: WentBack, attempt: int, now_ms: int) -> CheckpointManifest:
    """The state, the offsets and the promises of an older checkpoint, under the next id."""
    return replace(
        manifest,
        attempt=attempt,
        checkpoint_id=back.past + 1,
        triggered_ms=now_ms,
        completed_ms=now_ms,
        went_back=back,
    )
