"""Reading the state of a job in Spark: one task for each subtask that left some."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema

from onceflow.runtime.checkpoint.manifest import CheckpointManifest
from onceflow.runtime.state_tables.chosen_keys import ChosenKeys
from onceflow.runtime.state_tables.reader import (
    StoredState,
    StoredTable,
    files_of,
    pinned_manifest,
    read_state,
)
from onceflow.structured_streaming.arrow_types import arrow_schema_of
from onceflow.structured_streaming.state_all_rows import ALL_ROWS, all_rows_of, tables_left
from onceflow.structured_streaming.state_changes import changes_schema
from onceflow.structured_streaming.state_filters import keys_left
from onceflow.structured_streaming.state_options import StateOptions, state_options

LISTED = pa.schema(
    [
        ("operator", pa.string()),
        ("state", pa.string()),
        ("kind", pa.string()),
        ("schema", pa.string()),
        ("stored_rows", pa.int64()),
    ]
)
PUSHING = "pyspark.sql.worker.data_source_pushdown_filters"
"""What a process of Spark's runs that asks for filters."""
_OTHERS = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.date64(): pa.date32(),
}
"""What Spark has not, and what holds all its values."""


def state_schema(options: Mapping[str, str]) -> Any:
    """The columns of what the options ask for, as Spark's."""
    given = state_options(options)
    if given.operator is None:
        return from_arrow_schema(ALL_ROWS if given.all_rows else LISTED)
    with read_state(given.path, given.checkpoint) as stored:
        table = stored.table(given.operator, given.state)
        schema = pa.schema([_spark_field(field) for field in table.schema])
        return from_arrow_schema(schema if given.changes_from is None else changes_schema(schema))


@dataclass
class StatePart(InputPartition):
    """The state of one subtask, by a manifest with nothing else. `name`: operator and state, if all rows of
    all tables are read."""

    manifest: bytes
    is_savepoint: bool
    name: tuple[str, str] | None = None

    def __init__(self, manifest: bytes, is_savepoint: bool, name: tuple[str, str] | None = None) -> None:
        super().__init__(None)
        self.manifest = manifest
        self.is_savepoint = is_savepoint
        self.name = name


class StateReader(DataSourceReader):
    """Plans in the driver, reads in tasks.

    The plan pins the checkpoint: tasks may run when the job has dropped it. Nobody tells the plan when they
    have ended, so its pin stays until it is an hour old, and somebody reads the folder or the job starts.
    """

    def __init__(self, schema: Any, options: Mapping[str, str]) -> None:
        self._schema = schema
        self._options: StateOptions = state_options(options)
        self._keys: list[dict[str, Any]] | None = None
        """The keys that filters leave; None: all."""
        self._filters: list[Any] = []

    def partitions(self) -> Sequence[InputPartition]:
        given = self._options
        store, manifest, where, _ = pinned_manifest(given.path, given.checkpoint)
        is_savepoint = where.startswith("savepoint ")
        if given.all_rows:
            tables = tables_left(self._filters, StoredState(store, manifest, where).tables)
            named = [((table.operator, table.state), table) for table in tables]
            return [
                StatePart(each, is_savepoint, name) for name, of in named for each in _parts(manifest, of)
            ]
        table = None
        if given.operator is not None:
            stored = StoredState(store, manifest, where)
            table = stored.table(given.operator, given.state)
            keys = self._chosen(table)  # what is wrong is said here
            manifest = manifest if keys is None else _with_keys(manifest, table, keys)
        return [StatePart(each, is_savepoint) for each in _parts(manifest, table)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        given, schema = self._options, arrow_schema_of(self._schema)
        if not isinstance(partition, StatePart):
            return  # where filters leave no part Spark makes one of nothing
        manifest = msgspec.json.decode(partition.manifest, type=CheckpointManifest)
        stored = StoredState(files_of(given.path, partition.is_savepoint), manifest, given.path)
        if partition.name is not None:
            for batch in all_rows_of(stored.table(*partition.name)):
                yield batch.cast(schema)
            return
        if given.operator is None:
            yield _listed(stored).cast(schema)
            return
        table = stored.table(given.operator, given.state)
        for batch in table.batches(self._chosen(table)):
            yield batch.cast(schema)

    def _chosen(self, table: StoredTable) -> Sequence[Any] | None:
        """The keys to read; None: all. Filters narrow what options do not: Spark applies them to either."""
        given = self._options.keys_of(table.key_columns.names)
        return self._keys if given is None else given


class FilteredStateReader(StateReader):
    """A StateReader that reads no more than what a query's filters leave of the keys, or of the operators and
    states. Spark 4.1 asks it, and applies the filters itself to what it reads."""

    def pushFilters(self, filters: list[Any]) -> list[Any]:
        given = self._options
        self._filters = filters
        if given.operator is not None:
            with read_state(given.path, given.checkpoint) as stored:
                self._keys = keys_left(filters, stored.table(given.operator, given.state).key_columns)
        return filters


def _parts(manifest: CheckpointManifest, table: StoredTable | None) -> Iterator[bytes]:
    """Manifests, each with a part of the table; None: the whole."""
    if table is None:
        yield msgspec.json.encode(manifest)
        return
    mine = [handle for handle in manifest.states if handle.uid == table.operator]
    operators = {uid: of for uid, of in manifest.operators.items() if uid == table.operator}
    splits = {uid: of for uid, of in manifest.splits.items() if uid == table.operator}
    small = replace(manifest, states=mine, operators=operators, splits=splits, committables=(), finished={})
    if table.parts == 1:
        yield msgspec.json.encode(small)
        return
    for handle in mine:
        yield msgspec.json.encode(replace(small, states=[handle]))


def reader_class(modules: Mapping[str, object]) -> type[StateReader]:
    """Which reader there is in a process that has loaded these modules: only where Spark asks for filters one
    that takes them, since where a session has them off it refuses such a reader."""
    return FilteredStateReader if PUSHING in modules else StateReader


def _with_keys(manifest: CheckpointManifest, table: StoredTable, keys: Sequence[Any]) -> CheckpointManifest:
    """The manifest without the parts in which none of these keys is. Raises UsageError if one is no key."""
    where = f"state {table.state!r} of {table.operator!r}"
    groups = ChosenKeys(keys, table.key_columns, manifest.max_parallelism, where).key_groups
    states = [
        handle
        for handle in manifest.states
        if handle.uid != table.operator or any(group in handle.key_groups for group in groups)
    ]
    return replace(manifest, states=states)


def _listed(stored: StoredState) -> pa.RecordBatch:
    rows = [
        {
            "operator": table.operator,
            "state": table.state,
            "kind": table.kind,
            "schema": ", ".join(f"{field.name} {field.type}" for field in table.schema),
            "stored_rows": table.stored_rows,
        }
        for table in stored.tables
    ]
    return pa.RecordBatch.from_pylist(rows, LISTED)


def _spark_field(field: pa.Field) -> pa.Field:
    return pa.field(field.name, _spark_type(field.type))


def _spark_type(of: pa.DataType) -> pa.DataType:
    """A type of Spark's that holds all values of this one."""
    t = pa.types
    if t.is_struct(of):
        return pa.struct([_spark_field(field) for field in of])
    if t.is_map(of):
        return pa.map_(_spark_type(of.key_type), _spark_type(of.item_type))
    if t.is_list(of) or t.is_large_list(of):
        return pa.list_(_spark_field(of.value_field))
    if t.is_dictionary(of):
        return _spark_type(of.value_type)
    if t.is_timestamp(of):
        return pa.timestamp("us", None if of.tz is None else "UTC")
    if t.is_decimal(of):
        return pa.decimal128(of.precision, of.scale)
    if t.is_time(of) or t.is_duration(of):
        return pa.int64()
    if t.is_fixed_size_binary(of):
        return pa.binary()
    return _OTHERS.get(of, of)
