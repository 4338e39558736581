"""The last lines of `onceflow run` when a job did not end well: what is kept, and what to do next."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from onceflow.cli.checkpoints import read_staged_output
from onceflow.runtime.checkpoint.events import Outcome
from onceflow.runtime.checkpoint.listing import CheckpointStatus, CheckpointSummary, list_checkpoints
from onceflow.runtime.checkpoint.log import LOG_FOLDER
from onceflow.runtime.checkpoint.store_url import open_store
from onceflow.runtime.driver.result import JobResult
from onceflow.runtime.errors import (
    CorruptCheckpointError,
    DataLossError,
    GraphError,
    Indeterminate,
    OnceflowError,
    OptionError,
    Retryable,
    UsageError,
)

_MISFITS = {kind.__name__ for kind in (UsageError, GraphError, OptionError)}
_PASSING = {"", *(kind.__name__ for kind in (Retryable, Indeterminate))}
_ANEW = "another --checkpoint-dir and another output topic compute anew"


def closing_lines(result: JobResult, checkpoint_dir: str) -> list[str]:
    """The last lines of a job that failed or was fenced. Reads the checkpoint folder; all of it if a damage
    ended the job."""
    is_damaged = result.cause == CorruptCheckpointError.__name__
    lines = [f"the job {result.outcome.value}: {result.reason}"]
    with contextlib.suppress(OnceflowError, OSError):  # then the reason has to be enough
        store = open_store(checkpoint_dir, patience_s=0)  # it may be what the job has waited for already
        has_log = bool(store.list(LOG_FOLDER))
        found = list_checkpoints(store, read_staged_output if is_damaged else None) if has_log else []
        lines += advice(result, checkpoint_dir, found)
    return lines


def advice(result: JobResult, checkpoint_dir: str, found: Sequence[CheckpointSummary]) -> list[str]:
    """What the user can do. `found`: what is in the folder."""
    if result.outcome is Outcome.FENCED:
        return [
            "nothing is lost, and nothing is to be done: the newer driver goes on from the last checkpoint; "
            f"`onceflow status {checkpoint_dir}` asks it"
        ]
    good = sorted(
        c.checkpoint_id
        for c in found
        if c.status is CheckpointStatus.COMPLETED and c.checkpoint_id is not None
    )
    if result.cause == CorruptCheckpointError.__name__:
        if all(c.status is CheckpointStatus.INCOMPLETE for c in found):
            return _before_the_first(checkpoint_dir)
        return _after_damage(good, checkpoint_dir)
    again = _again(result.cause)
    if not good:
        return [f"no checkpoint is in {checkpoint_dir} yet; {again} to start from the beginning"]
    last = result.last_checkpoint_id if result.last_checkpoint_id in good else good[-1]
    lines = [f"last completed checkpoint: {last} in {checkpoint_dir}; {again} to go on from it"]
    if newer := [n for n in good if n > last]:
        lines.append(f"a newer one is kept: --from {newer[-1]} goes on from it")
    if older := [n for n in good if n < last]:
        lines.append(
            f"also kept: {_list(older)}; --from N goes back to one of them if no later output has been "
            "committed, or all of it can be taken back or replaced, or with --accept-duplicates-after N"
        )
    return lines


def _again(cause: str) -> str:
    """What has to come first, and how to go on then."""
    if cause in _PASSING:
        return "run the same command again"
    if cause in _MISFITS:
        return "do what the reason says, and run the command again"
    if cause == DataLossError.__name__:
        return (
            "the same command stops here again while the data is gone: do what the reason says, or bring it "
            f"back ({_ANEW}), and run the command again"
        )
    return "fix the cause, then run the same command again"


def _before_the_first(checkpoint_dir: str) -> list[str]:
    """The folder has nothing that could be damaged: what the job was to begin with is."""
    return [
        f"no checkpoint is in {checkpoint_dir} yet: what is damaged is the savepoint or checkpoint that "
        "--from names, and the same command meets the damage again: bring its file back from a backup, or "
        "give --from another savepoint"
    ]


def _after_damage(good: Sequence[int], checkpoint_dir: str) -> list[str]:
    lines = ["the same command meets the damage again: bring the file back from a backup, if there is one"]
    if not good:
        return [*lines, f"no good checkpoint is left in {checkpoint_dir}: {_ANEW}"]
    besides = f", also kept: {_list(good[:-1])}" if good[:-1] else ""
    return [
        *lines,
        f"last good checkpoint: {good[-1]} in {checkpoint_dir}{besides}; --from {good[-1]} goes on from it, "
        "exactly, if no later output is committed, or all of it can be taken back or replaced; if not, the "
        f"sink refuses to write it twice unless --accept-duplicates-after {good[-1]} is given, or {_ANEW}",
    ]


def _list(ids: Sequence[int]) -> str:
    return ", ".join(map(str, ids))
