"""Avro against its slow twin and against fastavro, on good and on hostile input; and written rows read back.

Columns are read field by field for a whole batch; the twin reads one datum at a time and is strict. Both
must find the same good rows with the same contents, and the same bad ones, whatever the bytes are. What
the twin takes, fastavro reads as the same values; what it writes, has the bytes that fastavro writes.
"""

from __future__ import annotations

import functools
import io
import itertools
import json
from decimal import Decimal
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from onceflow.connectors.formats import Avro
from onceflow.connectors.formats.avro.decode import AvroDecoder
from onceflow.connectors.formats.avro.encode import AvroEncoder
from onceflow.connectors.formats.avro.plan import plan
from onceflow.connectors.formats.avro.rows import BadDatumError, row_reader
from onceflow.connectors.formats.avro.schema.nodes import parse_registered, parse_schema
from onceflow.connectors.formats.avro.schema.target import targets_of_avro
from onceflow.connectors.formats.registry.schemas import LocalSchemas
from onceflow.runtime.kernels.ops import Ops, ops_here, using

ID = 7
HEADER = b"\0\0\0\0\x07"

FLAT = {
    "type": "record",
    "name": "Flat",
    "fields": [
        {"name": "user", "type": "string"},
        {"name": "amount", "type": "int"},
        {"name": "note", "type": ["null", "string"]},
        {"name": "ts", "type": "long"},
        {"name": "ratio", "type": ["double", "null"]},
        {"name": "ok", "type": "boolean"},
        {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}]},
        {"name": "share", "type": "float"},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B", "C"]}},
        {"name": "code", "type": {"type": "fixed", "name": "Code", "size": 3}},
        {"name": "blob", "type": "bytes"},
    ],
}
PLAIN = {
    "type": "record",
    "name": "Plain",
    "fields": [f for f in FLAT["fields"] if f["name"] not in ("kind", "code", "at")],
}
PRICE = {"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 2}
NESTED = {
    "type": "record",
    "name": "Nested",
    "fields": [
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "rates", "type": {"type": "map", "values": ["null", "double"]}},
        {
            "name": "place",
            "type": [
                "null",
                {
                    "type": "record",
                    "name": "Place",
                    "fields": [
                        {"name": "x", "type": "int"},
                        {
                            "name": "path",
                            "type": {"type": "array", "items": {"type": "array", "items": "long"}},
                        },
                    ],
                },
            ],
        },
        {"name": "price", "type": PRICE},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
    ],
}


@functools.cache
def parsed(schema: str) -> Any:
    return fastavro.parse_schema(json.loads(schema))


def datum(schema: Any, record: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, parsed(json.dumps(schema)), record)
    return out.getvalue()


def varint(value: int) -> bytes:
    """Any integer, also one that is too large."""
    zigzag = value << 1 if value >= 0 else (-value << 1) - 1
    out = bytearray()
    while zigzag > 0x7F:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    return bytes([*out, zigzag])


# --- Good values ----------------------------------------------------------------------------------

INTS = st.integers(-(1 << 31), (1 << 31) - 1)
LONGS = st.one_of(
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.integers(-70, 70),
    st.sampled_from([b * (1 << (7 * k - 1)) + d for k in range(1, 10) for b in (1, -1) for d in (-1, 0, 1)]),
)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=8)
FLATS = st.fixed_dictionaries(
    {
        "user": TEXTS,
        "amount": INTS,
        "note": st.none() | TEXTS,
        "ts": LONGS,
        "ratio": st.none() | st.floats(),
        "ok": st.booleans(),
        "at": st.none() | st.integers(-62_135_596_800_000, 253_402_300_799_999),
        "share": st.floats(width=32),
        "kind": st.sampled_from("ABC"),
        "code": st.binary(min_size=3, max_size=3),
        "blob": st.binary(max_size=200),
    }
)
NESTEDS = st.fixed_dictionaries(
    {
        "tags": st.lists(TEXTS, max_size=4) | st.lists(st.just("t"), max_size=70),
        "rates": st.dictionaries(TEXTS, st.none() | st.floats(), max_size=3),
        "place": st.none()
        | st.fixed_dictionaries({"x": INTS, "path": st.lists(st.lists(LONGS, max_size=3), max_size=3)}),
        "price": st.integers(-(10**30) + 1, 10**30 - 1).map(
            lambda v: Decimal((v < 0, [*map(int, str(abs(v)))], -2))
        ),
        "day": st.integers(-719_162, 2_932_896),
    }
)


# --- Hostile values -------------------------------------------------------------------------------


def pieces(schema: Any, record: Any) -> list[bytes]:
    """The encoded fields of a record."""
    return [
        datum({"type": "record", "name": "One", "fields": [field]}, {field["name"]: record[field["name"]]})
        for field in schema["fields"]
    ]


ODD_PIECES = st.one_of(
    st.binary(max_size=12),
    st.sampled_from(
        [
            varint(1 << 31), varint(-(1 << 31) - 1), varint(1 << 63), varint(1 << 70), varint(-1), varint(3),
            varint(1 << 40), b"\x80" * 9 + b"\x01", b"\xff" * 10, b"\x80" * 9 + b"\x7e", b"\x80\x00",
            b"\x02\xff", b"\x04\xc3\x28", b"\x06\xed\xa0\x80", b"\x02", b"",
            varint(-2) + varint(4), varint(-1) + varint(-5), varint(-(1 << 63)), varint(100),
        ]
    ),
)  # fmt: skip


@st.composite
def damaged(draw: st.DrawFn, schema: Any, records: st.SearchStrategy[Any]) -> bytes:
    """A value with a strange field, with bytes cut out, doubled or put in, or with another header."""
    parts = pieces(schema, draw(records))
    header = HEADER
    kind = draw(st.integers(0, 4))
    if kind == 0:
        parts[draw(st.integers(0, len(parts) - 1))] = draw(ODD_PIECES)
    elif kind == 1:
        header = draw(
            st.binary(max_size=6)
            | st.sampled_from([b"\x01\0\0\0\x07", b"\0\0\0\0\x09", b"\0\xff\xff\xff\xff"])
        )
    value = header + b"".join(parts)
    if kind == 2:
        at, skip = draw(st.integers(0, len(value))), draw(st.integers(0, 3))
        value = value[:at] + draw(st.binary(max_size=3)) + value[at + skip :]
    elif kind == 3:
        value = value[: draw(st.integers(0, len(value)))]
    return value


def values(schema: Any, records: st.SearchStrategy[Any]) -> st.SearchStrategy[bytes]:
    good = records.map(lambda record: HEADER + b"".join(pieces(schema, record)))
    return st.one_of(good, good, damaged(schema, records), st.binary(max_size=20))


# --- The twin -------------------------------------------------------------------------------------


def twin(schema: Any, columns: frozenset[str] | None = None) -> Any:
    """A function from a value to its row; None if it is bad."""
    node = parse_schema(schema)
    targets = [t for t in targets_of_avro(node) if columns is None or t.name in columns]
    read = row_reader(plan(node, targets))
    types = pa.schema([t.field for t in targets])

    def row(value: bytes | None) -> Any:
        if value is None or value[:5] != HEADER:
            return None
        try:
            cells = read(value[5:])
        except BadDatumError:
            return None
        return {f.name: pa.array([c], f.type)[0].as_py() for c, f in zip(cells, types, strict=True)}

    return row


def decoder_of(schema: Any, columns: frozenset[str] | None, chosen: Ops) -> AvroDecoder:
    targets = [t for t in targets_of_avro(parse_schema(schema)) if columns is None or t.name in columns]
    with using(chosen):
        return AvroDecoder(targets, LocalSchemas({ID: schema}, "AVRO", parse_registered), "error")


def check(schema: Any, given_values: Any, columns: frozenset[str] | None = None) -> None:
    for chosen in ops_here():
        check_one(schema, given_values, columns, decoder_of(schema, columns, chosen))


def check_one(schema: Any, given_values: Any, columns: frozenset[str] | None, decoder: AvroDecoder) -> None:
    decoded = decoder.decode(given_values)
    listed = given_values.to_pylist() if isinstance(given_values, pa.Array) else given_values
    good = list(range(len(listed))) if decoded.rows is None else decoded.rows.tolist()
    assert sorted([*good, *(bad.row for bad in decoded.bad)]) == list(range(len(listed)))
    assert good == sorted(good)
    decoded.batch.validate(full=True)
    rows = dict(zip(good, decoded.batch.to_pylist(), strict=True))
    row_of = twin(schema, columns)
    for index, value in enumerate(listed):
        expected = row_of(value)
        assert (index in rows) == (expected is not None), value
        assert repr(rows.get(index)) == repr(expected), value


# --- Reading --------------------------------------------------------------------------------------


@settings(max_examples=150)
@given(st.lists(st.none() | values(FLAT, FLATS), max_size=8), st.booleans(), st.integers(0, 2))
@example([], True, 0)
@example([None, None], True, 1)
def test_flat_columns_agree_with_the_slow_twin(them: list[bytes | None], as_array: bool, skip: int) -> None:
    check(FLAT, pa.array(them, pa.binary())[skip:] if as_array else them)


@settings(max_examples=100)
@given(st.lists(values(NESTED, NESTEDS), max_size=6), st.booleans())
def test_nested_columns_agree_with_the_slow_twin(them: list[bytes], as_array: bool) -> None:
    check(NESTED, pa.array(them, pa.large_binary()) if as_array else them)


@settings(max_examples=60)
@given(
    st.lists(values(FLAT, FLATS), max_size=6),
    st.frozensets(st.sampled_from([f["name"] for f in FLAT["fields"]])),
)
def test_some_columns_agree_with_the_slow_twin(them: list[bytes], columns: frozenset[str]) -> None:
    check(FLAT, them, columns)


@settings(max_examples=60)
@given(
    st.lists(values(NESTED, NESTEDS), max_size=5),
    st.frozensets(st.sampled_from([f["name"] for f in NESTED["fields"]])),
)
def test_some_nested_columns_agree_with_the_slow_twin(them: list[bytes], columns: frozenset[str]) -> None:
    check(NESTED, them, columns)


@pytest.mark.parametrize("schema", [FLAT, NESTED], ids=["flat", "nested"])
def test_fastavro_reads_the_same_from_what_the_twin_takes(schema: Any) -> None:
    node = parse_schema(schema)
    read = row_reader(plan(node, targets_of_avro(node)))
    plain = json.loads(json.dumps(schema).replace('"logicalType"', '"was"'))
    known = fastavro.parse_schema(plain)
    taken = 0

    @settings(max_examples=200, database=None)
    @given(values(schema, FLATS if schema is FLAT else NESTEDS))
    def agree(value: bytes) -> None:
        nonlocal taken
        try:
            cells = read(value[5:])
        except BadDatumError:
            return
        taken += 1
        record: Any = fastavro.schemaless_reader(io.BytesIO(value[5:]), known, None)
        if schema is NESTED:
            unscaled = int.from_bytes(record["price"], "big", signed=True)
            record["price"] = Decimal((int(unscaled < 0), [*map(int, str(abs(unscaled)))], -2))
            record["rates"] = list(record["rates"].items())
            cells[1] = list(dict(cells[1]).items())
        assert repr(cells) == repr(list(record.values()))

    agree()
    assert taken > 50


def test_one_bad_value_among_ten_thousand_costs_nobody_else() -> None:
    record = {
        "user": "é", "amount": 5, "note": None, "ts": 1 << 60, "ratio": 0.5, "ok": True, "at": 3,
        "share": 1.5, "kind": "B", "code": b"abc", "blob": b"",
    }  # fmt: skip
    good = HEADER + datum(FLAT, record)
    for place, chosen in itertools.product((0, 4_321, 9_999), ops_here()):
        decoder = decoder_of(FLAT, None, chosen)
        many = [good] * 10_000
        many[place] = good[:-1]
        decoded = decoder.decode(many)
        assert [bad.row for bad in decoded.bad] == [place]
        assert decoded.batch.num_rows == 9_999
        assert decoded.rows is not None
        assert np.array_equal(decoded.rows, np.delete(np.arange(10_000), place))
        assert len(set(map(repr, decoded.batch.to_pylist()))) == 1


def test_lengths_that_only_add_up_over_two_values_are_bad() -> None:
    """Decoders of a whole block see nothing here: what the first value lacks the second has too much."""
    one = {
        "type": "record",
        "name": "One",
        "fields": [{"name": "x", "type": "long"}, {"name": "y", "type": "long"}],
    }
    decoder = Avro(one, registry={ID: one}).decoder()
    decoded = decoder.decode([HEADER + b"\x02", HEADER + b"\x04\x06\x08", HEADER + b"\x0a\x0c"])
    assert [bad.row for bad in decoded.bad] == [0, 1]
    assert decoded.batch.to_pylist() == [{"x": 5, "y": 6}]


def test_blocks_with_sizes_are_read_as_java_writes_them() -> None:
    """A negative count, the block's size in bytes, the items; more than one block."""
    schema = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "xs", "type": {"type": "array", "items": "long"}}],
    }
    value = varint(-2) + varint(2) + varint(1) + varint(2) + varint(1) + varint(3) + varint(0)
    decoded = Avro(schema, framing="none").decoder().decode([value, varint(0)])
    assert decoded.batch.to_pylist() == [{"xs": [1, 2, 3]}, {"xs": []}]


# --- Writing --------------------------------------------------------------------------------------


@settings(max_examples=100)
@given(st.lists(FLATS, max_size=6), st.integers(0, 2))
def test_flat_rows_have_the_bytes_that_fastavro_writes(records: list[Any], skip: int) -> None:
    written_like_fastavro(FLAT, records, skip)


@settings(max_examples=100)
@given(st.lists(FLATS, max_size=6), st.integers(0, 2))
def test_plain_rows_have_the_bytes_that_fastavro_writes(records: list[Any], skip: int) -> None:
    names = [field["name"] for field in PLAIN["fields"]]
    written_like_fastavro(PLAIN, [{name: r[name] for name in names} for r in records], skip)


@settings(max_examples=60)
@given(st.lists(NESTEDS, max_size=5), st.integers(0, 2))
def test_nested_rows_have_the_bytes_that_fastavro_writes(records: list[Any], skip: int) -> None:
    written_like_fastavro(NESTED, records, skip)


def written_like_fastavro(schema: Any, records: list[Any], skip: int) -> None:
    columns = Avro(schema, registry={ID: schema}).schema
    assert columns is not None
    arrays = [pa.array([_as_arrow(r[f.name], f.type) for r in records], f.type) for f in columns]
    batch = pa.RecordBatch.from_arrays(arrays, schema=columns)[skip:]
    node = parse_schema(schema)
    for chosen in ops_here():
        with using(chosen):
            encoded = AvroEncoder(columns, node, lambda: ID).encode(batch).to_pylist()
        assert encoded == [HEADER + datum(schema, record) for record in records[skip:]]
    again = Avro(schema, registry={ID: schema}).decoder().decode(encoded)
    assert not again.bad
    assert repr(again.batch.to_pylist()) == repr(batch.to_pylist())


def _as_arrow(value: Any, arrow: pa.DataType) -> Any:
    return list(value.items()) if pa.types.is_map(arrow) else value


COLUMNS: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.string(), TEXTS),
    (pa.large_string(), TEXTS),
    (pa.int64(), LONGS),
    (pa.int8(), st.integers(-128, 127)),
    (pa.uint32(), st.integers(0, (1 << 32) - 1)),
    (pa.float64(), st.floats()),
    (pa.float32(), st.floats(width=32)),
    (pa.bool_(), st.booleans()),
    (pa.binary(), st.binary(max_size=5)),
    (pa.binary(2), st.binary(min_size=2, max_size=2)),
    (pa.date32(), st.dates()),
    (pa.time32("ms"), st.integers(0, 86_399_999)),
    (pa.timestamp("us"), st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999)),
    (pa.decimal128(5, 2), st.decimals("-999.99", "999.99", places=2)),
    (pa.list_(pa.int64()), st.lists(st.none() | LONGS, max_size=3)),
    (pa.large_list(pa.string()), st.lists(st.none() | TEXTS, max_size=3)),
    (
        pa.map_(pa.string(), pa.int32()),
        st.dictionaries(TEXTS, st.none() | INTS, max_size=3).map(lambda d: [*d.items()]),
    ),
    (
        pa.struct([("x", pa.int64()), ("ys", pa.list_(pa.string()))]),
        st.fixed_dictionaries(
            {"x": st.none() | LONGS, "ys": st.none() | st.lists(st.none() | TEXTS, max_size=2)}
        ),
    ),
]  # fmt: skip


@st.composite
def batches(draw: st.DrawFn) -> pa.RecordBatch:
    chosen = draw(st.lists(st.sampled_from(COLUMNS), min_size=1, max_size=5))
    count = draw(st.integers(0, 5))
    arrays = [
        pa.array(draw(st.lists(st.none() | cells, min_size=count, max_size=count)), arrow)
        for arrow, cells in chosen
    ]
    return pa.RecordBatch.from_arrays(arrays, names=[f"c{i}" for i in range(len(arrays))])


@settings(max_examples=100)
@given(batches(), st.integers(0, 2))
def test_any_rows_are_read_back_with_the_schema_that_is_made_of_them(
    batch: pa.RecordBatch, skip: int
) -> None:
    batch = batch[min(skip, batch.num_rows) :]
    format = Avro(batch.schema, framing="none")
    again = format.decoder().decode(format.encoder(batch.schema).encode(batch))
    assert not again.bad
    assert repr(again.batch.to_pylist()) == repr(batch.to_pylist())
    assert again.batch.schema == batch.schema
