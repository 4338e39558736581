"""One rule for all sources, by the same two options: a record that can't be decoded ends the job, which names
it, or is a dead letter, and the others are rows. A source that a program can name stands in one of the tables
below."""

from __future__ import annotations

import dataclasses
import inspect
import tomllib
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest

from onceflow.connectors.bad_records import ADVICE, TolerantSource
from onceflow.connectors.files import files_source
from onceflow.connectors.formats import Json
from onceflow.connectors.http_stream import HttpStreamSource
from onceflow.connectors.kafka import KafkaSource
from onceflow.connectors.kafka.fetched import Details, Fetched
from onceflow.connectors.kafka.reader_splits import SplitTable
from onceflow.connectors.kafka.split import KafkaSplit
from onceflow.connectors.kinesis import KinesisSource
from onceflow.connectors.message_rows import Letter
from onceflow.connectors.message_source import MessageSource
from onceflow.connectors.nifi import NifiSource
from onceflow.connectors.postgres_cdc import PostgresCdcSource
from onceflow.connectors.pubsub import PubSubSource
from onceflow.connectors.rabbitmq import RabbitQueueSource, RabbitStreamSource
from onceflow.runtime.clock import ManualClock
from onceflow.runtime.contracts import DEAD_LETTER_SCHEMA, DeadLetterSource, ReaderContext
from onceflow.runtime.errors import BadRecordError, OptionError
from onceflow.runtime.testing.mutation import Mutant, mutated
from onceflow.sinks.print import PrintSink

PROJECT = Path(__file__).parents[3] / "pyproject.toml"
SOURCES = tomllib.loads(PROJECT.read_text())["project"]["entry-points"]["onceflow.sources"]
DECODES_NOTHING = {
    "nexmark": "it makes its records itself",
    "delta": "a column of a table has one type, in all rows of a file or in none",
}
OF_ITS_PARTS = ("hybrid",)
SINK = PrintSink("bad")

SCHEMA = pa.schema([pa.field("n", pa.int64(), nullable=False)])
VALUE = Json(SCHEMA)
GOOD, BAD = b'{"n":1}', b'{"n":"one"}'


class Read(NamedTuple):
    """What came of a good record, and a bad one behind it."""

    batch: pa.RecordBatch
    dead_letters: pa.RecordBatch | None


def read_messages(source: MessageSource, folder: Path) -> Read:
    def letter(number: int) -> Letter:
        return Letter(f"record {number} of place", "place", 0, number, None)

    made = source.rows().of([GOOD, BAD], lambda kept: [], letter)
    return Read(made.batch, made.dead_letters)


def read_files(source: Any, folder: Path) -> Read:
    (folder / "a.jsonl").write_bytes(GOOD + b"\n" + BAD + b"\n")
    reader = source.open_reader(context())
    reader.add_splits(source.open_enumerator("job", ManualClock()).initial_splits())
    fetch = reader.poll(0, 100)
    assert fetch is not None
    return Read(fetch.records, fetch.dead_letters)


def read_kafka(source: KafkaSource, folder: Path) -> Read:
    splits = SplitTable()
    splits.add([KafkaSplit("place", "id", 0, 0)])
    fetched = Fetched(
        [GOOD, BAD], np.zeros(2, np.uint16), np.arange(2), details=lambda row: Details(None, 0, [])
    )
    built = source.rows().build(fetched, splits)
    return Read(built.batch, built.dead_letters)


def read_changes(source: PostgresCdcSource, folder: Path) -> Read:
    reader = source.open_reader(context())
    fetch = reader._fetch([(("1",), [b"1"], None), (("2",), [b"one"], None)], 0)
    return Read(fetch.records, fetch.dead_letters)


def context() -> ReaderContext:
    return ReaderContext("job", "read", 0, 1, ManualClock())


class Row(NamedTuple):
    make: Callable[..., Any]
    given: dict[str, Any]
    read: Callable[[Any, Path], Read] = read_messages
    names: str = "record 1 of place can't be decoded"
    """What the sentence of the job's end has of the record and its place."""


TABLE = {
    "files": Row(
        files_source, {"type": SCHEMA}, read_files, r"a\.jsonl: the record at byte 8 can't be decoded"
    ),
    "kafka": Row(
        KafkaSource,
        {"bootstrap_servers": "nowhere:1", "topics": ["place"], "value": VALUE},
        read_kafka,
        "the value of the record in place-0 at offset 1 can't be decoded",
    ),
    "postgres-cdc": Row(
        PostgresCdcSource,
        {"url": "host=nowhere", "table": "place", "of": SCHEMA, "slot": "s", "publication": "p"},
        read_changes,
        "public.place.*: the row with the key 2 can't be decoded",
    ),
    "kinesis": Row(KinesisSource, {"stream": "place", "value": VALUE}),
    "rabbitmq-stream": Row(RabbitStreamSource, {"streams": ["place"], "value": VALUE}),
    "rabbitmq-queue": Row(RabbitQueueSource, {"queues": ["place"], "value": VALUE}),
    "pubsub": Row(PubSubSource, {"subscriptions": ["place"], "project_id": "p", "value": VALUE}),
    "nifi": Row(NifiSource, {"urls": ["http://nowhere:1"], "port": "place", "value": VALUE}),
    "http-stream": Row(HttpStreamSource, {"urls": ["http://nowhere:1/place"], "value": VALUE}),
}
EACH = pytest.mark.parametrize("row", [pytest.param(row, id=name) for name, row in TABLE.items()])


def made_by(name: str) -> Any:
    module, _, attribute = SOURCES[name].partition(" ")[0].partition(":")
    return getattr(import_module(module), attribute)


def made(row: Row, folder: Path, **options: Any) -> Any:
    given = {"url": str(folder / "a.jsonl")} if row.make is files_source else {}
    return row.make(**given, **row.given, **options)


def test_each_source_that_decodes_is_in_the_table() -> None:
    assert {*TABLE, *DECODES_NOTHING, *OF_ITS_PARTS} == {*SOURCES}
    for name, row in TABLE.items():
        assert made_by(name) is row.make
    for name in OF_ITS_PARTS:
        assert callable(getattr(made_by(name), "dead_letter_sink", None)), f"{name} is no DeadLetterSource"


@EACH
def test_the_options_have_one_meaning(row: Row, tmp_path: Path) -> None:
    options = inspect.signature(row.make).parameters
    assert options["errors_tolerance"].default == "none", "by default such a record ends the job"
    assert options["dead_letters"].default is None
    strict = made(row, tmp_path)
    assert isinstance(strict, DeadLetterSource)
    assert strict.dead_letter_sink() is None
    assert made(row, tmp_path, errors_tolerance="none") == strict
    tolerant = made(row, tmp_path, errors_tolerance="all", dead_letters=SINK)
    assert tolerant.dead_letter_sink() is SINK
    assert made(row, tmp_path, dead_letters=SINK) == tolerant, "a place says that they are tolerated"
    assert tolerant.project(frozenset({"n"})).dead_letter_sink() is SINK
    assert dataclasses.replace(tolerant) == tolerant


@EACH
def test_a_tolerance_without_a_place_is_refused_and_so_is_an_unknown_one(row: Row, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r'errors_tolerance="all" needs a place .*: give dead_letters='):
        made(row, tmp_path, errors_tolerance="all")
    with pytest.raises(OptionError, match=r"errors_tolerance='al' \(did you mean 'all'\?\): write "):
        made(row, tmp_path, errors_tolerance="al")


@EACH
def test_a_bad_record_ends_the_job_which_names_it(row: Row, tmp_path: Path) -> None:
    with pytest.raises(BadRecordError, match=row.names) as ended:
        row.read(made(row, tmp_path), tmp_path)
    assert str(ended.value).endswith(ADVICE)


@EACH
def test_or_it_is_a_dead_letter_and_the_others_are_rows(row: Row, tmp_path: Path) -> None:
    read = row.read(made(row, tmp_path, errors_tolerance="all", dead_letters=SINK), tmp_path)
    assert read.batch.to_pylist() == [{"n": 1}]
    assert read.dead_letters is not None
    assert read.dead_letters.schema == DEAD_LETTER_SCHEMA
    (letter,) = read.dead_letters.to_pylist()
    assert b"one" in letter["value"]
    assert letter["topic"].endswith(("place", "a.jsonl"))
    assert letter["offset"] in (1, len(GOOD) + 1)
    assert letter["reason"]
    assert letter["stage"] == "value"


def settles_nothing(self: TolerantSource, other_place: Any = None) -> None:
    """Whatever is given is taken."""


@EACH
def test_where_the_two_options_are_not_brought_in_line_it_is_seen(row: Row, tmp_path: Path) -> None:
    with mutated(Mutant("any tolerance is taken", [(TolerantSource, "settle_tolerance", settles_nothing)])):
        with pytest.raises((AssertionError, pytest.fail.Exception)):
            test_a_tolerance_without_a_place_is_refused_and_so_is_an_unknown_one(row, tmp_path)
        with pytest.raises((AssertionError, BadRecordError)):
            test_the_options_have_one_meaning(row, tmp_path)
