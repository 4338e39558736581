"""`--until WHEN`: where the sources of a run end that have no end of their own."""

from __future__ import annotations

import datetime as dt

from onceflow.runtime.checkpoint.log_view import read_log
from onceflow.runtime.checkpoint.manifest import CheckpointManifest
from onceflow.runtime.checkpoint.savepoints.folder import NoSavepointError, savepoint_at
from onceflow.runtime.checkpoint.store_url import open_store
from onceflow.runtime.contracts import Json
from onceflow.runtime.errors import OptionError, UsageError
from onceflow.runtime.graph.ended import ended
from onceflow.runtime.graph.job_graph import JobGraph

LATEST, TIME = "latest", "timestamp:"


def given_until(until: str | dt.datetime | None) -> str | None:
    """What a user gives, as RunOptions has it: "latest", "timestamp:" and a time, or a folder or URL. Raises
    OptionError for a time without a zone."""
    if isinstance(until, str):
        if until == LATEST or until.startswith(TIME):
            return until
        if until.isdecimal():
            return f"{TIME}{until}"
    if until is None:
        return None
    try:
        time = until if isinstance(until, dt.datetime) else dt.datetime.fromisoformat(until)
    except ValueError:
        return str(until)
    if time.tzinfo is None:
        raise OptionError(f"until={str(until)!r} has no time zone: add Z or an offset such as +02:00")
    return f"{TIME}{time.isoformat()}"


def ended_at(graph: JobGraph, until: str) -> JobGraph:
    """The graph whose sources end there. A folder is that of a savepoint or of a job, whose newest checkpoint
    it is then. Raises OptionError if a source can't end there."""
    if until == LATEST or until.startswith(TIME):
        return ended(graph, lambda uid: until)
    manifest = _manifest(until)
    return ended(graph, lambda uid: _offsets(manifest, uid, until))


def _manifest(path: str) -> CheckpointManifest:
    try:
        return savepoint_at(path).read().manifest
    except NoSavepointError:
        completed = read_log(open_store(path)).completed()
    except UsageError as error:
        raise OptionError(f"--until {path}: {error}") from error
    if not completed:
        raise OptionError(
            f"--until {path}: there is no checkpoint: write latest, a time such as 2026-01-31T00:00:00Z, or "
            "the folder of a savepoint or a job"
        )
    return completed[-1][1]


def _offsets(manifest: CheckpointManifest, uid: str, path: str) -> Json:
    """How far that folder has read a source: the first offset of each split that it has not."""
    splits = manifest.splits.get(uid, ())
    offsets = {each.split.split_id: each.split.position.get("next_offset") for each in splits}
    if not splits or None in offsets.values():
        there = ", ".join(sorted(manifest.splits)) or "none"
        raise OptionError(f"{path} has no offsets of it: use a uid that has some there: {there}")
    return offsets
