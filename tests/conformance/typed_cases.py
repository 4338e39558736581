"""What must hold of a type of the table: each case is made where a graph is built, and called in a slot. It
gives "right", or says what is not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

from onceflow import Ctx, Job, KeyedProcess, ListState, MapState, ValueState, WatermarkStrategy
from onceflow.connectors.formats import Avro, Decoder, Encoder, Json
from onceflow.connectors.formats.avro.schema.derived import avro_of_arrow
from onceflow.connectors.formats.wire_columns import AVRO_WIRE
from onceflow.runtime.errors import GraphError
from onceflow.runtime.records import Records
from onceflow.runtime.testing.harness import LONE_SUBTASK, OperatorHarness
from onceflow.runtime.types.columns_of_records import RecordWriter
from onceflow.runtime.types.record_types import describe_record, describe_type
from onceflow.runtime.types.records_of_columns import RecordReader

RIGHT = "right"
Case = Callable[[], Any]


def cases_of(row: Any, record_type: Callable[[Any], Any]) -> dict[str, Case]:
    """The cases of a row of the table. `record_type` makes a type with the field `x`."""
    made = record_type(row.python)
    described = describe_record(made)
    assert str(described.schema.field("x").type) == row.arrow, described.schema
    examples = [made(each.value) for each in row.examples]
    writer, reader = RecordWriter.of(described), RecordReader(made)
    texts = [f'{{"x":{each.json}}}' for each in row.examples]
    also = [(f'{{"x":{text}}}', place) for place, each in enumerate(row.examples) for text in each.read]
    bad = [f'{{"x":{text}}}' for text in row.bad_json]
    cases: dict[str, Case] = {
        "columns": Columns(writer, reader, examples),
        "json": JsonText(Json(made).decoder, reader, writer, Json().encoder(writer.schema), examples, texts),
        "json, also read": JsonRead(Json(made).decoder, reader, also, examples),
        "json, bad": JsonBad(Json(made).decoder, bad, texts[0]),
        "state": states_of(row.state_type or row.python, [e.x for e in examples if e.x is not None]),
    }
    wire = pa.schema([AVRO_WIRE.field(column) for column in writer.schema])
    (field,) = avro_of_arrow(wire, "Row")["fields"]
    said = row.avro if isinstance(row.avro, dict) and "default" in row.avro else {"type": row.avro}
    assert field == {"name": "x", **said}, field
    avro = Avro(made, framing="none")
    cases["avro"] = AvroData(avro.decoder, reader, writer, avro.encoder(writer.schema), examples)
    cases |= keys_of(row, made, writer.write(examples))
    return {f"{row.said}: {name}": case for name, case in cases.items()}


def _differs(found: Any, right: Any) -> str:
    """RIGHT if both are equal, and of the same types; else what they are. A copy of an enum's member, or of a
    class, is not equal."""
    alike = found == right and text_of(found) == text_of(right)
    return RIGHT if alike else f"{text_of(found)} in place of {text_of(right)}"


def text_of(value: Any) -> str:
    """What `repr` says, with types inside, and sets in one order: theirs is chance in each process."""
    if isinstance(value, set | frozenset):
        return f"{type(value).__name__}({sorted(map(text_of, value))})"
    if type(value) in (list, tuple):
        return f"{type(value).__name__}({', '.join(map(text_of, value))})"
    if isinstance(value, dict):
        return f"dict({', '.join(f'{text_of(k)}: {text_of(v)}' for k, v in value.items())})"
    for names in ("__struct_fields__", "__pydantic_fields__", "__dataclass_fields__", "__match_args__"):
        if fields := getattr(type(value), names, ()):
            return f"{type(value).__name__}({', '.join(text_of(getattr(value, name)) for name in fields)})"
    return repr(value)


@dataclass(frozen=True)
class Columns:
    """Records to columns, and back."""

    writer: RecordWriter
    reader: RecordReader
    examples: list[Any]

    def __call__(self) -> str:
        batch = self.writer.write(self.examples)
        batch.validate(full=True)
        return _differs(self.reader.read(batch), self.examples)


@dataclass(frozen=True)
class JsonText:
    """Text to records, and back to the same text."""

    decoder: Callable[[], Decoder]
    reader: RecordReader
    writer: RecordWriter
    encoder: Encoder
    examples: list[Any]
    texts: list[str]

    def __call__(self) -> str:
        decoded = self.decoder().decode([text.encode() for text in self.texts])
        if decoded.bad:
            return str(decoded.bad)
        if self.writer.write(self.examples) != decoded.batch:
            return f"other columns: {decoded.batch}"
        if (read := _differs(self.reader.read(decoded.batch), self.examples)) != RIGHT:
            return read
        written = [bytes(value).decode() for value in self.encoder.encode(decoded.batch).to_pylist()]
        return _differs(written, self.texts)


@dataclass(frozen=True)
class JsonRead:
    """Other texts of the same values."""

    decoder: Callable[[], Decoder]
    reader: RecordReader
    texts: list[tuple[str, int]]
    examples: list[Any]

    def __call__(self) -> str:
        decoded = self.decoder().decode([text.encode() for text, _ in self.texts])
        if decoded.bad:
            return str(decoded.bad)
        return _differs(self.reader.read(decoded.batch), [self.examples[place] for _, place in self.texts])


@dataclass(frozen=True)
class JsonBad:
    """Texts that are no values of the type, each beside a good one."""

    decoder: Callable[[], Decoder]
    texts: list[str]
    good: str

    def __call__(self) -> str:
        values = [value.encode() for text in self.texts for value in (text, self.good)]
        decoded = self.decoder().decode(values)
        named = all("`$" in bad.reason for bad in decoded.bad)
        rows = [bad.row for bad in decoded.bad]
        return RIGHT if named and rows == list(range(0, len(values), 2)) else str(decoded.bad)


@dataclass(frozen=True)
class AvroData:
    """Records to data, and back."""

    decoder: Callable[[], Decoder]
    reader: RecordReader
    writer: RecordWriter
    encoder: Encoder
    examples: list[Any]

    def __call__(self) -> str:
        batch = self.writer.write(self.examples)
        decoded = self.decoder().decode(self.encoder.encode(batch))
        if decoded.bad:
            return str(decoded.bad)
        if decoded.batch != batch:
            return f"other columns: {decoded.batch}"
        return _differs(self.reader.read(decoded.batch), self.examples)


# --- Operators ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """Makes a program put or get."""

    key: str


@dataclass(frozen=True)
class Said:
    """What a program found."""

    text: str


class Source:
    """Rows of a type."""

    is_bounded = True

    def __init__(self, record_type: Any) -> None:
        self.record_type = record_type
        self.schema = describe_record(record_type).schema


class Sink:
    def check(self, schema: pa.Schema, uid: str) -> None:
        pass


class Out:
    def __init__(self) -> None:
        self.records: list[Records] = []

    def emit(self, records: Records, tag: str = "") -> None:
        self.records.append(records)


def operators(program: Callable[[Any], Any], record_type: Any) -> list[Callable[[], Any]]:
    """What makes the operators of a program over rows of the type, in order."""
    job = Job("typed")
    program(job.source(Source(record_type), WatermarkStrategy.monotonous(), uid="rows")).sink_to(
        Sink(), uid="out"
    )
    nodes = [node for chain in job.build().chains for node in chain.nodes.items()]
    return [node.create for uid, node in nodes if uid not in ("rows", "out")]


def states_of(value_type: Any, values: list[Any]) -> Case:
    """A program that remembers values in each kind of state, and says whether it got back what it had put."""
    named = {str(place): value for place, value in enumerate(values)}
    is_key = describe_type(value_type, "x").is_immutable
    places = {value: place for place, value in enumerate(values)} if is_key else {}

    class Remember(KeyedProcess[str, Step, Said]):
        value = ValueState("value", value_type)
        all = ListState("all", value_type)
        named = MapState("named", str, value_type)
        places = MapState("places", value_type if is_key else str, int)

        def process(self, record: Step, ctx: Ctx) -> Iterator[Said]:
            had = self.value.get()
            if had is None:
                self.value.set(values[-1])
                self.named.put_all(named)
                self.places.put_all(places)
                for value in values:
                    self.all.add(value)
                yield Said("put")
            else:
                found = [had, list(self.all.get()), dict(self.named.items()), dict(self.places.items())]
                yield Said(_differs(found, [values[-1], values, named, places]))

    (create,) = operators(lambda rows: rows.key_by("key").process(Remember(), uid="process"), Step)
    return State(create, RecordWriter.of(describe_record(Step)).write([Step("k")]))


@dataclass(frozen=True)
class State:
    """State put, restored at another parallelism, and got."""

    create: Callable[[], Any]
    batch: pa.RecordBatch

    def __call__(self) -> str:
        first = OperatorHarness(self.create, ["key"])
        first.push(self.batch, [1])
        again = OperatorHarness(self.create, ["key"], parallelism=2, states=first.snapshot())
        again.push(self.batch, [2])
        (put,), (got,) = first.rows(), again.rows()
        return str(got["text"]) if put == {"text": "put"} else f"{put} was said"


class Named(KeyedProcess[Any, Any, Said]):
    """Says whether keys are what the records have, in process() and in on_timer()."""

    last = ValueState("last", str)

    def process(self, record: Any, ctx: Ctx) -> Iterator[Said]:
        self.last.set(text_of(record.x))
        ctx.timers.event_time(100)
        yield Said(_differs(ctx.key, record.x))

    def on_timer(self, fired: Any, ctx: Ctx) -> Iterator[Said]:
        yield Said(RIGHT if text_of(ctx.key) == self.last.get() else f"{ctx.key!r} for {self.last.get()}")


@dataclass(frozen=True)
class Keys:
    """Records by key, restored between process() and on_timer()."""

    creates: list[Callable[[], Any]]
    column: str
    batch: pa.RecordBatch

    def __call__(self) -> str:
        rows = self.batch
        for create in self.creates[:-1]:
            operator, out = create(), Out()
            operator.open(LONE_SUBTASK, out)
            operator.on_records(Records(rows))
            rows = out.records[0].batch
        first = OperatorHarness(self.creates[-1], [self.column])
        first.push(rows, list(range(len(rows))))
        again = OperatorHarness(self.creates[-1], [self.column], parallelism=2, states=first.snapshot())
        again.finish()
        said = [row["text"] for row in [*first.rows(), *again.rows()]]
        return RIGHT if said == [RIGHT] * 2 * len(rows) else str(said)


def keys_of(row: Any, record_type: Any, batch: pa.RecordBatch) -> dict[str, Case]:
    """The type as a key: a field, and what a function returns. What can't be one is refused here."""

    def key(record: Any) -> Any:
        return record.x

    key.__annotations__["return"] = row.python

    def by_field(rows: Any) -> Any:
        return rows.key_by("x").process(Named(), uid="process")

    def by_function(rows: Any) -> Any:
        return rows.key_by(key).process(Named(), uid="process")

    if not row.can_be_key:
        for program in (by_field, by_function):
            with pytest.raises(GraphError, match="can't be a key"):
                operators(program, record_type)
        return {}
    return {
        "key_by a field": Keys(operators(by_field, record_type), "x", batch),
        "key_by a function": Keys(operators(by_function, record_type), "key", batch),
    }
