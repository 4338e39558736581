"""Debezium: what each change becomes, in JSON with and without its schema, and in Avro."""

from __future__ import annotations

import datetime as dt
import io
import json
import pickle
from dataclasses import dataclass
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from pyspark import cloudpickle

from onceflow.connectors.formats import Avro, Debezium, Json
from onceflow.connectors.kafka.fetched import Details, Fetched
from onceflow.connectors.kafka.reader_splits import SplitTable
from onceflow.connectors.kafka.source.row_builder import RowBuilder
from onceflow.connectors.kafka.split import KafkaSplit
from onceflow.runtime.errors import GraphError, OptionError
from onceflow.runtime.records import RowKind


@dataclass(frozen=True)
class Order:
    id: int
    note: str | None = None


COLUMNS = pa.schema([pa.field("id", pa.int64(), False), pa.field("note", pa.string())])
SOURCE = {"connector": "postgresql", "ts_ms": 5, "schema": "public", "table": "orders", "lsn": 7}
A, B = {"id": 1, "note": "a"}, {"id": 1, "note": None}
INSERT, BEFORE, AFTER, DELETE = RowKind


def change(op: str | None, before: Any = None, after: Any = None, **more: Any) -> dict[str, Any]:
    envelope = {"before": before, "after": after, "source": SOURCE, "ts_ms": 9, "transaction": None, **more}
    return envelope if op is None else {**envelope, "op": op}


NULLS = {"default": None}
ROW = {
    "type": "record",
    "name": "Value",
    "fields": [{"name": "id", "type": "int"}, {"name": "note", "type": ["null", "string"], **NULLS}],
}
ENVELOPE = {
    "type": "record",
    "name": "shop.orders.Envelope",
    "fields": [
        {"name": "before", "type": ["null", ROW], **NULLS},
        {"name": "after", "type": ["null", "Value"], **NULLS},
        {
            "name": "source",
            "type": {
                "type": "record",
                "name": "Source",
                "fields": [{"name": "ts_ms", "type": "long"}, {"name": "table", "type": "string"}],
            },
        },
        {"name": "op", "type": "string"},
        {"name": "ts_ms", "type": ["null", "long"], **NULLS},
    ],
}


def value(envelope: Any, with_schema: bool = False) -> bytes:
    return json.dumps(
        {"schema": {"type": "struct"}, "payload": envelope} if with_schema else envelope
    ).encode()


CHANGES = [change("r", None, A), change("u", A, B), change("d", B, None), change("c", None, A)]
ROWS = [A, A, B, B, A]
KINDS = [INSERT, BEFORE, AFTER, DELETE, INSERT]
PLACES = [0, 1, 1, 2, 4]


@pytest.mark.parametrize("of", [Order, COLUMNS], ids=["record", "schema"])
@pytest.mark.parametrize("with_schema", [[False] * 4, [True] * 4, [True, False, False, True]], ids=str)
def test_changes_are_rows_with_their_kinds(of: Any, with_schema: list[bool]) -> None:
    form = Debezium(Json(of))
    values: list[bytes | None] = [
        value(each, with_) for each, with_ in zip(CHANGES, with_schema, strict=True)
    ]
    values.insert(3, None)  # the tombstone behind the delete
    decoded = form.decoder().decode(values)
    assert not decoded.bad
    assert decoded.batch.schema == form.schema == COLUMNS
    assert decoded.batch.to_pylist() == ROWS
    assert decoded.kinds is not None
    assert decoded.rows is not None
    assert decoded.kinds.tolist() == KINDS
    assert decoded.rows.tolist() == PLACES


def test_changes_in_avro_are_read_with_the_schema_they_were_written_with() -> None:
    values = []
    for each in CHANGES:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, fastavro.parse_schema(ENVELOPE), each)
        values.append(b"\0\0\0\0\x07" + out.getvalue())
    for of in (Order, COLUMNS):
        decoded = Debezium(Avro(of, registry={7: ENVELOPE}), table_column="of").decoder().decode(values)
        assert not decoded.bad
        assert decoded.batch.to_pylist() == [{**each, "of": "orders"} for each in ROWS]
        assert decoded.kinds is not None
        assert decoded.kinds.tolist() == KINDS


@pytest.mark.parametrize(
    ("envelope", "said"),
    [
        (change("t"), "its table was truncated"),
        (change("m"), "its op is 'm'"),
        (change(None, None, A), "it has no op"),
        (A, "it has no op"),
        (change("c", None, None), "it has no `after`"),
        (change("u", None, B), "REPLICA IDENTITY FULL"),
        (change("d", None, None), "REPLICA IDENTITY FULL"),
        (change("u", {"note": "x"}, B), "id"),
        (change("c", None, {"id": "1"}), "id"),
        ([], "Expected `object`"),
    ],
)
def test_what_is_no_change_of_a_row_is_bad(envelope: Any, said: str) -> None:
    decoded = Debezium(Json(Order)).decoder().decode([value(CHANGES[1]), value(envelope), value(CHANGES[2])])
    assert [bad.row for bad in decoded.bad] == [1]
    assert said in decoded.bad[0].reason
    assert decoded.rows is not None
    assert decoded.rows.tolist() == [0, 0, 2]


def test_an_update_without_its_row_as_it_was_is_the_new_row_if_that_is_said() -> None:
    form = Debezium(Json(Order), before="optional")
    decoded = form.decoder().decode(
        [value(change("u", None, B)), value(change("u", A, B)), value(change("d"))]
    )
    assert decoded.kinds is not None
    assert decoded.kinds.tolist() == [AFTER, BEFORE, AFTER]
    assert [bad.row for bad in decoded.bad] == [2]


def test_what_debezium_knows_of_a_change_are_columns_if_they_are_named() -> None:
    form = Debezium(Json(Order), op_column="op", ts_column="seen", source_ts_column="made", table_column="of")
    decoded = form.decoder(frozenset({"op", "made", "id", "seen"})).decode([value(CHANGES[1])])
    ms = [dt.datetime.fromtimestamp(n / 1_000, dt.UTC) for n in (9, 5)]
    assert decoded.batch.to_pylist() == [{"id": 1, "op": "u", "seen": ms[0], "made": ms[1]}] * 2
    assert form.schema.names == ["id", "note", "op", "seen", "made", "of"]
    nothing = form.decoder(frozenset()).decode([value(CHANGES[1])])
    assert nothing.batch.num_rows == 2


def test_it_travels_to_slots() -> None:
    form = pickle.loads(cloudpickle.dumps(Debezium(Json(Order))))
    assert form.decoder().decode([value(CHANGES[0])]).batch.to_pylist() == [A]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Debezium(Json()), "needs the rows' type"),
        (lambda: Debezium(Order), "write Debezium(Json(Order))"),
        (lambda: Debezium(Json(Order), op_column="id"), "two columns have the same name"),
        (lambda: Debezium(Json(Order), before="no"), "before='no'"),  # type: ignore[arg-type]
        (lambda: Debezium(Json(Order, extra="forbid")), "leave out extra="),
        (lambda: Debezium(Json(Order)).encoder(COLUMNS), "can only be read"),
    ],
)
def test_what_is_wrong_is_refused(make: Any, said: str) -> None:
    with pytest.raises((OptionError, GraphError)) as caught:
        make()
    assert said in str(caught.value)


def test_keys_and_metadata_go_with_each_row_of_a_change() -> None:
    """A record whose key is bad has no row, also if it is two."""
    key = Json(pa.schema([pa.field("k", pa.int64(), False)]))
    schema = pa.schema([pa.field("k", pa.int64(), False), *COLUMNS, pa.field("offset", pa.int64(), False)])
    splits = SplitTable()
    splits.add([KafkaSplit("orders", "id", 0, 0)])
    rows = RowBuilder(schema, key.decoder(), Debezium(Json(Order)).decoder(), ["offset"], "all")
    values = [value(each) for each in CHANGES]
    keys = [b'{"k":0}', b"?", b'{"k":2}', b'{"k":3}']
    fetched = Fetched(
        value=values, row_split=np.zeros(4, np.uint16), offset=np.arange(10, 14), key=keys,
        details=lambda row: Details(keys[row], 0, []),
    )  # fmt: skip
    built = rows.build(fetched, splits)
    assert [(r["k"], r["offset"]) for r in built.batch.to_pylist()] == [(0, 10), (2, 12), (3, 13)]
    assert built.kinds is not None
    assert built.kinds.tolist() == [INSERT, DELETE, INSERT]
    assert built.dead_letters is not None
    assert built.dead_letters.column("offset").to_pylist() == [11]
