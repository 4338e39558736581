"""What checkpoints need of sources and sinks in the driver, as the checkpoint folder's I/O sees them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from onceflow.runtime.checkpoint import events as ev
from onceflow.runtime.checkpoint.manifest import CheckpointManifest
from onceflow.runtime.contracts import Json, SplitProgress


class SplitDoor(Protocol):
    """The sources' enumerators, as far as the start of an attempt needs them. Calls may block."""

    def initial_splits(self) -> Mapping[str, Sequence[SplitProgress]]:
        """The splits by source uid, at the job's very first start, at the configured start."""
        ...

    def splits_from(self, starts: Mapping[str, Json]) -> Mapping[str, Sequence[SplitProgress]]:
        """The splits of these sources, from the start that is given instead of the configured one. Raises
        UsageError for a start that the source does not know."""
        ...

    def bounded(self, manifest: CheckpointManifest) -> Mapping[str, Sequence[SplitProgress]]:
        """The splits of a savepoint, those of sources that end with their end."""
        ...

    def check_restored(self, splits: Mapping[str, Sequence[SplitProgress]]) -> None:
        """Raises DataLossError where reading can't go on exactly."""
        ...

    def found_since(self, manifest: CheckpointManifest) -> Mapping[str, Sequence[SplitProgress]]:
        """Splits that are there now and not in the restored manifest, from their beginning, by source uid.
        A source that can't be asked is left out: discovery asks it again while the job runs."""
        ...

    def prune(self, manifest: CheckpointManifest, finished: Mapping[str, Json]) -> CheckpointManifest:
        """The manifest without finished splits that the source remembers; `finished`: of the checkpoint
        before. Pure."""
        ...

    def on_pruned(self, manifest: CheckpointManifest, finished: Mapping[str, Json]) -> None:
        """This manifest was made durable, pruned: its finished splits are remembered in `finished`."""
        ...


class SinkDoor(Protocol):
    """The committers of sinks that commit once for all their writers. Calls may block."""

    def restore(self, attempt: int, manifest: CheckpointManifest) -> CheckpointManifest:
        """Commit what the restored checkpoint promised; what is left of it is for the slots."""
        ...

    def commit(self, manifest: CheckpointManifest) -> None:
        """Idempotent. Raises Retryable or Indeterminate: try again."""
        ...


def with_new(
    manifest: CheckpointManifest, found: Mapping[str, Sequence[SplitProgress]]
) -> dict[str, Sequence[SplitProgress]]:
    """The splits of a manifest of those sources for which new ones were found, with these."""
    return {uid: [*manifest.splits.get(uid, ()), *new] for uid, new in found.items()}


def discovered(uid: str, new: Sequence[SplitProgress]) -> ev.Announce:
    """What is announced of new splits of a source."""
    return ev.Announce("splits_discovered", {"uid": uid, "splits": [p.split.split_id for p in new]})
