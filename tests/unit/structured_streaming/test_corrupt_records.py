"""Records that can't be decoded in streams of Spark: the same options for each source that decodes."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from onceflow.connectors.files import files_source
from onceflow.runtime.clock import ManualClock
from onceflow.runtime.contracts import DEAD_LETTER_SCHEMA, DeadLetterSource, Fetch, SplitState
from onceflow.runtime.errors import BadRecordError, OptionError
from onceflow.structured_streaming.any_source.batch_reading import RowShape, check_corrupt, read_splits
from onceflow.structured_streaming.any_source.files_form import READ_FILES
from onceflow.structured_streaming.any_source.formats import FORMATS
from onceflow.structured_streaming.any_source.source_format import SourceFormat, read_options
from onceflow.structured_streaming.corrupt_records import (
    CORRUPT,
    ColumnOfTheirOwn,
    as_text_or_bytes,
    corrupt_column,
    tolerance_of,
)
from onceflow.structured_streaming.source_options import source_options

N = pa.field("n", pa.int64())
WITH_CORRUPT = pa.schema([N, (CORRUPT, pa.binary())])
READ = [READ_FILES, *(each.reading for each in FORMATS)]
DECODING: dict[str, tuple[dict[str, str], list[str]]] = {
    "onceflow-files": ({"path": "in/*.jsonl"}, []),
    "onceflow-kinesis": ({"stream": "s", "partition_key_column": "key"}, ["key"]),
    "onceflow-rabbitmq-stream": (
        {"streams": "s", "offset_column": "at", "stream_column": "of"},
        ["at", "of"],
    ),
    "onceflow-postgres-cdc": (
        {"url": "host=h", "table": "t", "slot": "s", "publication": "p", "kind_column": "kind"},
        [],
    ),
}
"""What each needs to be made, and its columns beside the record's own."""


@pytest.mark.parametrize("form", [pytest.param(form, id=form.name) for form in READ])
def test_each_format_that_decodes_has_the_options(form: SourceFormat) -> None:
    if form.name not in DECODING:
        assert form.of_letters is None
        with pytest.raises(OptionError, match="has no option 'mode'"):
            read_options(form, {"mode": "permissive"})
        return
    options, beside = DECODING[form.name]
    columns = pa.schema([N, *((name, pa.string()) for name in beside)])
    for given, tolerates in (
        ({}, False),
        ({"mode": "FAILFAST"}, False),
        ({"errorstolerance": "none"}, False),
        ({"mode": "permissive"}, True),
        ({"errorsTolerance": "all"}, True),
        ({"errors_tolerance": "all", "columnnameofcorruptrecord": "bad"}, True),
    ):
        asked = read_options(form, {**options, **given})
        source = form.make(asked.given, columns)
        assert isinstance(source, DeadLetterSource)
        assert isinstance(source.dead_letter_sink(), ColumnOfTheirOwn) == tolerates
        assert (tolerance_of(asked.corrupt) == "all") == tolerates


@pytest.mark.parametrize(
    ("schema", "given", "said"),
    [
        (WITH_CORRUPT, {"mode": "dropmalformed"}, "no record is dropped without a trace"),
        (WITH_CORRUPT, {"errors_tolerance": "al"}, "did you mean 'all'"),
        (WITH_CORRUPT, {"mode": "permissive", "errors_tolerance": "none"}, "say different things: give one"),
        (WITH_CORRUPT, {"columnNameOfCorruptRecord": CORRUPT}, "of no use unless mode"),
        (pa.schema([N]), {"errors_tolerance": "all"}, f"needs a column '{CORRUPT}' of type BINARY or STRING"),
        (pa.schema([N]), {"mode": "permissive", "columnNameOfCorruptRecord": "n"}, "needs a column 'n' of"),
    ],
)
def test_what_is_wrong_is_refused(schema: pa.Schema, given: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        corrupt_column(schema, given)


def test_both_names_say_the_same_to_every_format() -> None:
    assert corrupt_column(WITH_CORRUPT, {"mode": "Permissive", "errors_tolerance": "ALL"}) == CORRUPT
    assert corrupt_column(WITH_CORRUPT, {"errors_tolerance": "none"}) is None
    kafka = {"kafka.bootstrap.servers": "nowhere:1", "subscribe": "t", "errors_tolerance": "all"}
    assert tolerance_of(source_options(kafka, "readStream").given) == "all"


def test_columns_that_have_nothing_then_may_be_null() -> None:
    strict = pa.schema([N.with_nullable(False), (CORRUPT, pa.binary())])
    with pytest.raises(OptionError, match="'n' may not"):
        check_corrupt(RowShape(strict, corrupt=CORRUPT))
    check_corrupt(RowShape(strict, corrupt=CORRUPT, of_letters={"n": "offset"}))
    check_corrupt(RowShape(strict))


def test_what_could_not_be_decoded_is_text_or_bytes() -> None:
    values = pa.array([b"a\xff", None])
    assert as_text_or_bytes(values, pa.binary()) is values
    assert as_text_or_bytes(values, pa.string()).to_pylist() == ["a\ufffd", None]


# --- Reading ------------------------------------------------------------------------------------------


def test_a_file_is_read_with_its_bad_lines_in_their_column(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"n":1}\nno\n{"n":3}\n')
    rows = read(tmp_path, RowShape(WITH_CORRUPT, corrupt=CORRUPT), dead_letters=ColumnOfTheirOwn())
    assert rows == [
        {"n": 1, CORRUPT: None},
        {"n": 3, CORRUPT: None},
        {"n": None, CORRUPT: b"no"},
    ]


def test_without_a_column_the_first_one_is_named_with_what_to_do_in_spark(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"n":1}\nno\n')
    with pytest.raises(
        BadRecordError, match=r'byte 8 can.*\. To go on .*\.option\("mode", "permissive"\)$'
    ) as e:
        read(tmp_path, RowShape(pa.schema([N])))
    assert "dead_letters=" not in str(e.value)


def read(folder: Path, shape: RowShape, **options: Any) -> list[dict[str, Any]]:
    source = files_source(str(folder / "*.jsonl"), pa.schema([N]), **options)
    splits = list(source.open_enumerator("job", ManualClock()).initial_splits())
    return [row for batch in read_splits(source, splits, shape) for row in batch.to_pylist()]


class OneLetter:
    """A source and its reader: one dead letter."""

    def open_reader(self, context: Any) -> Any:
        return self

    def add_splits(self, splits: Any) -> None:
        pass

    def poll(self, timeout_ms: int, records_max: int) -> Fetch:
        letter = {
            "topic": "orders",
            "partition": 0,
            "offset": 7,
            "timestamp": 1_000,
            "key": b"k",
            "value": b"?",
            "reason": "no JSON",
            "stage": "value",
        }
        letters = pa.RecordBatch.from_pylist([letter], DEAD_LETTER_SCHEMA)
        nothing = pa.RecordBatch.from_pylist([], pa.schema([N]))
        done = frozenset({"s"})
        return Fetch(nothing, np.empty(0, np.uint16), ("s",), None, dead_letters=letters, finished=done)

    def close(self) -> None:
        pass


def test_what_is_known_of_the_record_anyway_has_its_column() -> None:
    zone = pa.timestamp("us", "UTC")
    fields = [N, ("of", pa.string()), ("at", pa.int64()), ("key", pa.string()), ("when", zone)]
    shape = RowShape(
        pa.schema([*fields, ("kind", pa.string()), ("bad", pa.string())]),
        "kind",
        "bad",
        {"of": "topic", "at": "offset", "key": "key", "when": "timestamp"},
    )
    source: Any = OneLetter()
    (batch,) = read_splits(source, [SplitState("s", {})], shape)
    known = {"of": "orders", "at": 7, "key": "k", "when": dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=dt.UTC)}
    assert batch.to_pylist() == [{"n": None, **known, "kind": None, "bad": "?"}]
