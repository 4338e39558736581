"""What the writers of a sink that upserts are told: what Redis and stores like it have in common."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from onceflow.connectors.staged_commits.staged_kinds import kinds_beside, with_kind
from onceflow.connectors.staged_commits.writer import CommitSettings
from onceflow.connectors.versioned_upserts.backend import Backend
from onceflow.connectors.versioned_upserts.ledger import Writer
from onceflow.connectors.versioned_upserts.target import Upserts, VersionedTarget
from onceflow.runtime.contracts import SinkContext


@dataclass(frozen=True, slots=True)
class UpsertSettings:
    """`who`: the sink on the live line, as in "Redis sink". `open_backend`: makes an owner's Backend.
    `give_up_after_ms`: how long the store may be away, or too busy, before the attempt fails."""

    who: str
    upserts: Upserts
    open_backend: Callable[[], Backend]
    give_up_after_ms: int


def upsert_commits(context: SinkContext, settings: UpsertSettings) -> CommitSettings:
    """The settings of a StagedCommitsWriter whose Target is a VersionedTarget."""

    def open_target(owner: str) -> VersionedTarget:
        names = (context.job, context.lineage, context.uid, owner)
        writer = Writer(*names, context.attempt, context.restored_checkpoint_id)
        backend = settings.open_backend()
        calls = ThreadPoolExecutor(backend.calls_max, f"onceflow-{context.uid}-{owner}")
        return VersionedTarget(backend, writer, settings.upserts, calls)

    schema = with_kind(context.schema)
    staged = partial(kinds_beside, schema)
    return CommitSettings(settings.who, open_target, settings.give_up_after_ms, schema, staged)
