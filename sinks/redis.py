"""RedisSink: each row as a key of Redis, updated and deleted exactly once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import pyarrow as pa

from onceflow.connectors.extras import needs_extra
from onceflow.connectors.staged_commits.writer import CommitSettings, StagedCommitsWriter
from onceflow.connectors.versioned_upserts.documents import Documents
from onceflow.connectors.versioned_upserts.keys import check_key, key_columns
from onceflow.connectors.versioned_upserts.target import Upserts
from onceflow.connectors.versioned_upserts.writers import UpsertSettings, upsert_commits
from onceflow.runtime.contracts import SinkContext
from onceflow.runtime.durations import duration_ms
from onceflow.runtime.errors import OptionError
from onceflow.runtime.explained_calls import explained


@explained
@dataclass(frozen=True, slots=True)
class RedisSink:
    """Keeps the last row of each `key` in Redis (or Valkey), under `prefix:KEY`. A Sink; opens nothing when
    it is made. Needs `pip install 'onceflow[redis]'`.

    A checkpoint's rows wait in the checkpoint folder until it is durable, and are then written in pieces,
    each whole: readers see them come within moments, never one of a checkpoint that was not completed, and
    after a crash the rest follows. Deletes of a changelog delete the key.

    `url`: "redis://host:6379/0", or "rediss://" for TLS. `key`: the column or columns that tell rows apart;
    of several the values are joined by colons. The engine brings all rows of a key to one subtask.

    `form`: "hash" has a field for each column that is not null, "json" is one JSON text. `expire`: how long a
    row lives after it was written last; None: for ever. `bad_rows_to`: a hash for rows that can't be written
    (a null in the key, a number that JSON does not know), with the reason; without it such a row ends the
    job. `delivery_timeout`: how long Redis may be away before the attempt fails.
    """

    url: str = field(repr=False)
    prefix: str
    key: str | Sequence[str]
    form: Literal["hash", "json"] = "hash"
    expire: str | int | None = None
    bad_rows_to: str | None = None
    delivery_timeout: str | int = "2 min"

    def __post_init__(self) -> None:
        key_columns(self.key, "RedisSink")
        for name in ("url", "prefix"):
            if not (isinstance(getattr(self, name), str) and getattr(self, name)):
                raise OptionError(f"RedisSink: {name} must be a text that is not empty")
        if self.prefix == "onceflow":
            raise OptionError("RedisSink: keys below 'onceflow:' are its ledger's: give another prefix")
        if self.form not in ("hash", "json"):
            raise OptionError(f'RedisSink: form={self.form!r}: write "hash" or "json"')
        duration_ms(self.delivery_timeout, "delivery_timeout")
        if self.expire is not None and duration_ms(self.expire, "expire") == 0:
            raise OptionError("RedisSink: expire=0 would delete each row at once: leave it out to keep rows")
        with needs_extra("RedisSink", "redis"):
            import redis  # noqa: F401

    @property
    def takes_kinds(self) -> bool:
        """See ChangelogSink."""
        return True

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """See PartitionedSink."""
        return key_columns(self.key, "RedisSink")

    @property
    def plan_note(self) -> str:
        by = ", ".join(self.partition_columns)
        return f"exactly once: the last row of each {by}, seen piece by piece once its checkpoint is durable"

    def check(self, schema: pa.Schema, uid: str) -> None:
        check_key(self.partition_columns, schema, uid)
        Documents(schema)

    def open_writer(self, context: SinkContext) -> StagedCommitsWriter:
        return StagedCommitsWriter(context, self.commit_settings(context))

    def commit_settings(self, context: SinkContext) -> CommitSettings:
        """See TargetSink."""
        from onceflow.connectors.redis.backend import RedisBackend, RedisSettings
        from onceflow.connectors.redis.key_values import RowValues

        expire_ms = 0 if self.expire is None else duration_ms(self.expire, "expire")
        settings = RedisSettings(self.url, self.prefix, self.form, expire_ms, self.bad_rows_to)
        values = RowValues(context.schema, self.form)
        upserts = Upserts(self.partition_columns, f"Redis ({self.prefix})", self.bad_rows_to is not None)
        timeout_ms = duration_ms(self.delivery_timeout, "delivery_timeout")

        def open_backend() -> RedisBackend:
            return RedisBackend(settings, values, context.uid)

        return upsert_commits(context, UpsertSettings("Redis sink", upserts, open_backend, timeout_ms))
