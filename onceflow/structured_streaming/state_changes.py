"""What has become of a state between two checkpoints, read by Spark: each task compares some key groups."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from onceflow.runtime.state_tables.changed_rows import ROW_KIND, change_parts, changes_in
from onceflow.runtime.state_tables.reader import StoredTable, pinned_manifest, read_state
from onceflow.structured_streaming.arrow_types import arrow_schema_of
from onceflow.structured_streaming.state_options import StateOptions, state_options


def changes_schema(table: pa.Schema) -> pa.Schema:
    """The columns of the changes of a table with these ones."""
    return pa.schema([pa.field(ROW_KIND, pa.string()), *table])


@dataclass
class ChangedPart(InputPartition):
    """What a task compares: key groups, or None for the whole table; up to the checkpoint `until`."""

    groups: range | None
    until: int

    def __init__(self, groups: range | None, until: int) -> None:
        super().__init__(None)
        self.groups = groups
        self.until = until


class ChangesReader(DataSourceReader):
    """Plans in the driver, where it pins both checkpoints as a StateReader pins one; compares in tasks."""

    def __init__(self, schema: Any, options: Mapping[str, str]) -> None:
        self._schema = schema
        self._options: StateOptions = state_options(options)

    def partitions(self) -> Sequence[InputPartition]:
        given = self._options
        _, manifest, _, _ = pinned_manifest(given.path, given.checkpoint)  # these pins are not taken away
        pinned_manifest(given.path, given.changes_from)
        with self._tables(manifest.checkpoint_id) as (was, now):
            return [ChangedPart(part, manifest.checkpoint_id) for part in change_parts(was, now)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, ChangedPart)
        schema = arrow_schema_of(self._schema)
        with self._tables(partition.until) as (was, now):
            yield from changes_in(was, now, partition.groups).cast(schema).to_batches()

    @contextmanager
    def _tables(self, until: int) -> Iterator[tuple[StoredTable, StoredTable]]:
        given = self._options
        assert given.operator is not None, "the options ask for it"
        with read_state(given.path, given.changes_from) as before, read_state(given.path, until) as after:
            yield before.table(given.operator, given.state), after.table(given.operator, given.state)
