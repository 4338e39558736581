"""The options of the files that Spark writes: each makes the sink that a job would name."""

from __future__ import annotations

from typing import Any

import pytest

from onceflow.connectors.files import Csv
from onceflow.runtime.errors import OptionError
from onceflow.sinks.files import FileSink, RollPolicy, daily, every, hourly
from onceflow.structured_streaming.any_sink.formats import OnceflowFiles
from onceflow.structured_streaming.any_sink.write_options import write_options

STREAM = {"path": "/out", "uid": "u", "checkpointLocation": "/c"}


def sink_of(**given: str) -> Any:
    return write_options(OnceflowFiles.form, {**STREAM, **given}, "writeStream").sink


def test_each_option_is_one_of_the_sink() -> None:
    assert sink_of() == FileSink("/out")
    assert sink_of(format="jsonl", compression="gzip") == FileSink("/out", "jsonl", compression="gzip")
    assert sink_of(format="csv", delimiter=";") == FileSink("/out", Csv(delimiter=";"))
    assert sink_of(max_file_size="1 MiB") == FileSink("/out", roll=RollPolicy(size=1 << 20))
    assert sink_of(open_files_max="3") == FileSink("/out", open_files_max=3)
    assert sink_of(storage_options='{"a": {"b": 1}}').storage_options == {"a": {"b": 1}}


def test_folders_are_columns_and_spans_of_time_of_columns() -> None:
    found = sink_of(partition_by="country, daily(ts),hourly(at), every(15 min, ts)")
    assert found.partition_by == ("country", daily("ts"), hourly("at"), every("15 min", "ts"))


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"partition_by": "a,,b"}, r"is 'a,,b': give names of columns, and spans"),
        ({"partition_by": "weekly(ts)"}, r"has 'weekly\(ts\)': give names"),
        ({"partition_by": "hourly()"}, r"has 'hourly\(\)', and rows of Spark have no event time"),
        ({"partition_by": "every(ts)"}, "name the column with their time"),
        ({"compression": "rar"}, "compression='rar'"),
        ({"delimiter": ";"}, "is for format csv, and this is parquet"),
        ({"max_file_size": "big"}, "max_file_size='big' is no size"),
        ({"max_file_size": "0"}, "give more than 0"),
        ({"open_files_max": "0"}, "open_files_max=0 has to be 1 or more"),
        ({"success_marker": "_SUCCESS"}, "Spark tells no sink how far that is: leave it out"),
        ({"storage_options": "secret"}, "option 'storage_options' is not a JSON object"),
    ],
)
def test_what_is_wrong_is_said(given: dict[str, str], sentence: str) -> None:
    with pytest.raises(OptionError, match=sentence) as told:
        sink_of(**given)
    assert "secret" not in str(told.value).replace('"secret"', "")
