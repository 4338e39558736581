"""`--dry-sink FOLDER`: what each sink would get, as Parquet files below a folder, exactly once."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from onceflow.connectors.files.written.writer import PartsWriter
from onceflow.connectors.staged_commits.staged_kinds import kinds_beside, with_kind
from onceflow.runtime.contracts import (
    ChangelogSink,
    Committable,
    CommitterContext,
    PartitionedSink,
    PreCommit,
    Sink,
    SinkContext,
)
from onceflow.runtime.graph.dry_run import dry_run_of
from onceflow.runtime.graph.job_graph import JobGraph
from onceflow.runtime.records import Records
from onceflow.sinks.files import FileCommitter, FileSink

KEY = b"onceflow.key"
"""What the Parquet files of a sink that writes by a key have in the metadata of their schema: its columns, as
JSON."""


def dry_run(graph: JobGraph, folder: str) -> JobGraph:
    """The graph with each sink replaced by Parquet files in FOLDER/<its uid>. Raises OptionError for a folder
    that can't be one, GraphError for rows that Parquet does not have."""
    root = folder.rstrip("/") if "://" in folder else str(Path(folder).absolute())
    return dry_run_of(graph, lambda sink, uid: DryRunSink(sink, f"{root}/{uid}"))


@dataclass(frozen=True)
class DryRunSink:
    """Stands in a graph where `of` stood, for `onceflow run --dry-sink`. It gets the same rows on the same
    subtasks, and shows them as Parquet files below `url` once their checkpoint is durable. Where `of` takes
    updates and deletes, the column `_kind` has the kind of each row: 0 insert, 1 update before, 2 update
    after, 3 delete."""

    of: Sink
    url: str

    @property
    def plan_note(self) -> str:
        return f"dry run: written to {self.url}, and not by {type(self.of).__name__}"

    @property
    def takes_kinds(self) -> bool:
        return isinstance(self.of, ChangelogSink) and self.of.takes_kinds

    @property
    def partition_columns(self) -> Sequence[str]:
        return self.of.partition_columns if isinstance(self.of, PartitionedSink) else ()

    def check(self, schema: pa.Schema, uid: str) -> None:
        """The sink that it stands for has refused what it would."""
        self._files.check(self._schema(schema), uid)

    def open_writer(self, context: SinkContext) -> DryRunWriter | PartsWriter:
        writer = self._files.open_writer(replace(context, schema=self._schema(context.schema)))
        return DryRunWriter(writer, self._schema(context.schema)) if self.takes_kinds else writer

    def open_committer(self, context: CommitterContext) -> FileCommitter:
        return self._files.open_committer(context)

    @property
    def _files(self) -> FileSink:
        return FileSink(self.url)

    def _schema(self, schema: pa.Schema) -> pa.Schema:
        whole = with_kind(schema) if self.takes_kinds else schema
        return whole.with_metadata({**(schema.metadata or {}), KEY: json.dumps([*self.partition_columns])})


class DryRunWriter:
    """A SinkWriter that gives a PartsWriter the kinds of rows as a column."""

    def __init__(self, writer: PartsWriter, schema: pa.Schema) -> None:
        self._writer = writer
        self._schema = schema

    def recover(self, committables: Sequence[Committable]) -> None:
        self._writer.recover(committables)

    def write(self, records: Records) -> None:
        self._writer.write(Records(kinds_beside(self._schema, records), records.event_time))

    def pre_commit(self, checkpoint_id: int) -> PreCommit:
        return self._writer.pre_commit(checkpoint_id)

    def commit(self, checkpoint_id: int) -> None:
        self._writer.commit(checkpoint_id)

    def close(self) -> None:
        self._writer.close()
