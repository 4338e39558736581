"""Debezium: the changes of a table, as Debezium's connectors write them, as rows that are inserted, updated
and deleted.

What a change becomes:

    c, r (created, or in a snapshot)  an insert of `after`
    u (updated)                       `before` is taken back, `after` comes in its place
    d (deleted)                       a delete of `before`
    t (truncated), m and others       a bad record: rows that nobody named can't be taken back
    a tombstone                       no row: the delete before it has said what it is for
    a `before` that is needed and     a bad record: the database has to log whole rows (PostgreSQL: REPLICA
    is not there                      IDENTITY FULL); with before="optional" an update is its `after` alone

A value in JSON may be the envelope, or have it in `payload`, beside its schema.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from onceflow.connectors.formats.format import BadValue, Decoded, Decoder, Encoder, Format, Values
from onceflow.runtime.errors import GraphError, OptionError
from onceflow.runtime.explained_calls import explained
from onceflow.runtime.records import Int64s, RowKind

_TIMES = pa.timestamp("ms", "UTC")
_NEEDS_BEFORE = (
    "it has no `before`: the database has to log whole rows (PostgreSQL: ALTER TABLE ... REPLICA IDENTITY "
    'FULL), or say before="optional"'
)
_NO_ENVELOPE = "it is not a Debezium envelope: it has no op"
_OPS: dict[str, tuple[RowKind | None, RowKind | None]] = {
    "c": (None, RowKind.INSERT),
    "r": (None, RowKind.INSERT),
    "u": (RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER),
    "d": (RowKind.DELETE, None),
}
"""What `before` and `after` of each change are."""


@dataclass
class _Source:
    """What is read of an envelope's `source`."""

    ts_ms: int | None = None
    schema: str | None = None
    table: str | None = None


@explained
@dataclass(frozen=True)
class Debezium:
    """`Debezium(Json(Order))`, `Debezium(Avro(Order, registry=...))`: the rows of a table with the columns of
    a record type or an Arrow schema, and what happened to them. A KafkaSource with this value is a changelog:
    filter, map and select keep what each row does, and a sink that supports updates and deletes accepts it,
    as PostgresSink does with a key.

    `before`: "required": an update or a delete without its old row is a bad record; "optional": such an
    update is its new row alone, which is right for a sink by key, while a filter may leave the old row there.

    `op_column`, `ts_column`, `source_ts_column`, `table_column`: names for columns with the change's letter,
    the time at which Debezium saw it, the time at which the database made it, and the table.

    It can only be read. Raises OptionError at once for a format that can't be in an envelope.
    """

    row: Any
    before: Literal["required", "optional"] = "required"
    op_column: str | None = None
    ts_column: str | None = None
    source_ts_column: str | None = None
    table_column: str | None = None

    def __post_init__(self) -> None:
        if self.before not in ("required", "optional"):
            raise OptionError(f'before={self.before!r}: write "required" or "optional"')
        if not hasattr(self.row, "of") or not hasattr(self.row, "on_null"):
            raise OptionError(f"Debezium({self.row!r}): write Debezium(Json(Order)) or around Avro(...)")
        if getattr(self.row, "extra", None) not in (None, "ignore"):
            raise OptionError(
                "Debezium reads the fields of an envelope: leave out extra= of the row's format"
            )
        names = self.schema.names
        if len(set(names)) < len(names):
            raise OptionError(f"two columns have the same name: {', '.join(names)}; give another *_column")
        _ = self._envelope

    @property
    def has_kinds(self) -> bool:
        """See ChangelogFormat."""
        return True

    @property
    def lacks_before(self) -> bool:
        """See ChangelogFormat."""
        return self.before == "optional"

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([*self._row_schema, *self._metadata.values()])

    @property
    def record_type(self) -> type | None:
        found: type | None = self.row.record_type
        return found

    def decoder(self, columns: frozenset[str] | None = None) -> Decoder:
        wanted = [field for field in self.schema if columns is None or field.name in columns]
        metadata = {what: field.name for what, field in self._metadata.items()}
        inner = self._envelope.decoder()
        return DebeziumDecoder(inner, pa.schema(wanted), metadata, self.before == "required")

    def encoder(self, schema: pa.Schema) -> Encoder:
        raise GraphError("Debezium can only be read: write rows with Json() or Avro(), or to a sink by key")

    # --- Parts ---

    @property
    def _row_schema(self) -> pa.Schema:
        schema = self.row.schema
        if schema is None:
            raise OptionError("Debezium needs the rows' type: Debezium(Json(Order))")
        return schema

    @property
    def _metadata(self) -> dict[str, pa.Field]:
        named = {
            "op": (self.op_column, pa.string()),
            "ts_ms": (self.ts_column, _TIMES),
            "source.ts_ms": (self.source_ts_column, _TIMES),
            "source.table": (self.table_column, pa.string()),
        }
        return {
            what: pa.field(name, arrow, nullable=what != "op")
            for what, (name, arrow) in named.items()
            if name is not None
        }

    @cached_property
    def _envelope(self) -> Format:
        """The format of envelopes. Made with the format, and shipped with it."""
        of = self.row.of
        is_json = not hasattr(self.row, "registry") or self.row.registry is None
        if isinstance(of, pa.Schema):
            made: Any = _envelope_schema(of, is_json)
        elif isinstance(of, type):
            made = _envelope_type(of, is_json)
        else:
            raise OptionError("Debezium needs the rows as a record type or an Arrow schema, not as text")
        envelope: Format = dataclasses.replace(self.row, of=made, on_null="skip")
        return envelope


def _envelope_schema(row: pa.Schema, may_be_payload: bool) -> pa.Schema:
    struct = pa.struct(list(row))
    source = pa.struct([("ts_ms", pa.int64()), ("schema", pa.string()), ("table", pa.string())])
    fields = [
        pa.field("before", struct), pa.field("after", struct), pa.field("op", pa.string()),
        pa.field("ts_ms", pa.int64()), pa.field("source", source),
    ]  # fmt: skip
    return pa.schema([*fields, pa.field("payload", pa.struct(fields))] if may_be_payload else fields)


def _envelope_type(row: type, may_be_payload: bool) -> type:
    fields: list[Any] = [
        ("before", row | None, None), ("after", row | None, None), ("op", str | None, None),
        ("ts_ms", int | None, None), ("source", _Source | None, None),
    ]  # fmt: skip
    envelope = dataclasses.make_dataclass("Envelope", fields)
    if not may_be_payload:
        return envelope
    return dataclasses.make_dataclass("Value", [*fields, ("payload", envelope | None, None)])


class DebeziumDecoder:
    """See Decoder. Another decoder reads the envelopes."""

    def __init__(
        self, envelopes: Decoder, schema: pa.Schema, metadata: dict[str, str], needs_before: bool
    ) -> None:
        """`schema`: the columns that are made; `metadata`: the names of those that are not the row's."""
        self._envelopes = envelopes
        self._schema = schema
        self._metadata = {name: what for what, name in metadata.items()}
        self._needs_before = needs_before

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def decode(self, values: Values) -> Decoded:
        decoded = self._envelopes.decode(values)
        places = np.arange(len(values)) if decoded.rows is None else decoded.rows
        parts = _unwrapped(decoded.batch)
        ops = parts["op"].to_pylist()
        there = {name: np.asarray(parts[name].is_valid()) for name in ("before", "after")}
        bad = list(decoded.bad)
        sides: list[int] = []  # 2 * row for its before, 2 * row + 1 for its after
        kinds: list[int] = []
        for row, op in enumerate(ops):
            found = self._changes(op, bool(there["before"][row]), bool(there["after"][row]))
            if isinstance(found, str):
                bad.append(BadValue(int(places[row]), found))
                continue
            for side, kind in found:
                sides.append(2 * row + side)
                kinds.append(kind)
        chosen = np.array(sides, np.int64)
        batch = self._rows(parts, chosen)
        return Decoded(batch, places[chosen // 2], sorted(bad), np.array(kinds, np.int8))

    def _changes(self, op: str | None, has_before: bool, has_after: bool) -> Sequence[tuple[int, int]] | str:
        """The rows of a change, each with its side and its kind; or why it is bad."""
        if op is None:
            return _NO_ENVELOPE
        if op not in _OPS:
            what = "its table was truncated" if op == "t" else f"its op is {op!r}"
            return f"{what}: rows that nobody named can't be taken back; clear the sink and begin anew"
        before, after = _OPS[op]
        if after is not None and not has_after:
            return f"it has no `after`, and its op is {op!r}"
        if before is not None and not has_before and (after is None or self._needs_before):
            return _NEEDS_BEFORE
        rows = [(0, int(before))] if before is not None and has_before else []
        return [*rows, (1, int(after))] if after is not None else rows

    def _rows(self, parts: dict[str, pa.Array], chosen: Int64s) -> pa.RecordBatch:
        """The columns of the sides that were chosen."""
        rows = pa.array(chosen // 2)
        count = len(parts["op"])
        both = pa.concat_arrays([parts["before"], parts["after"]])
        sides = both.take(pa.array(chosen // 2 + (chosen % 2) * count))
        children = dict(zip([f.name for f in both.type], sides.flatten(), strict=True))
        arrays = []
        for field in self._schema:
            what = self._metadata.get(field.name)
            if what is None:
                arrays.append(children[field.name])
            else:
                arrays.append(_metadata(parts, what).take(rows).cast(field.type))
        if not arrays:
            return pa.RecordBatch.from_struct_array(pa.array([{}] * len(chosen), pa.struct([])))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _metadata(parts: dict[str, pa.Array], what: str) -> pa.Array:
    outer, _, inner = what.partition(".")
    return pc.struct_field(parts[outer], inner) if inner else parts[outer]


def _unwrapped(batch: pa.RecordBatch) -> dict[str, pa.Array]:
    """The envelope's fields, whether they were in `payload` or not."""
    own = {name: batch.column(name) for name in ("before", "after", "op", "ts_ms", "source")}
    if "payload" not in batch.schema.names:
        return own
    payload = batch.column("payload")
    if payload.null_count == len(payload):
        return own
    inner = dict(zip([f.name for f in payload.type], payload.flatten(), strict=True))
    if not payload.null_count:
        return {name: inner[name] for name in own}
    is_inside = np.asarray(payload.is_valid())
    places = pa.array(np.arange(len(payload)) + np.where(is_inside, len(payload), 0))
    return {name: pa.concat_arrays([own[name], inner[name]]).take(places) for name in own}
