"""The options of sinks as formats at the door: what is asked for, what is refused and with which words."""

from __future__ import annotations

from typing import Any

import pytest

from onceflow.runtime.errors import OptionError
from onceflow.sinks.files import FileSink
from onceflow.sinks.postgres import PostgresSink
from onceflow.structured_streaming.any_sink.formats import FORMATS, OnceflowFiles, OnceflowPostgres
from onceflow.structured_streaming.any_sink.sink_format import SinkFormat
from onceflow.structured_streaming.any_sink.write_options import write_options
from onceflow.structured_streaming.option_texts import number

STREAM = {"url": "postgresql://h/d", "table": "t", "uid": "u", "checkpointLocation": "/c"}


def test_a_sink_is_made_of_its_options() -> None:
    given = {**STREAM, "Key": "a, b", "CREATE_TABLE": "True", "delivery_timeout": "5 s", "queryName": "q"}
    options = write_options(OnceflowPostgres.form, given, "writeStream")
    assert options.sink == PostgresSink(
        "postgresql://h/d", "t", key=("a", "b"), create_table=True, delivery_timeout="5 s"
    )
    assert (options.uid, options.checkpoint, options.staging) == ("u", "/c", None)


def test_a_folder_is_a_path_as_spark_writes_it() -> None:
    options = write_options(OnceflowFiles.form, {"path": "file:/out", "format": "csv"}, "write")
    assert isinstance(options.sink, FileSink)
    assert options.sink.place.url == "/out"
    assert not options.is_named


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"tabel": "t"}, r"no option 'tabel' for writeStream \(did you mean 'table'\?\): it has url, table"),
        ({"url": None}, r'writeStream of onceflow-postgres needs \.option\("url", ...\)'),
        ({"uid": None}, r'needs \.option\("uid", NAME\)'),
        ({"uid": "a b"}, "uid 'a b' must be"),
        ({"checkpointLocation": None}, r'needs \.option\("checkpointLocation", FOLDER\)'),
        ({"create_table": "yes"}, "option 'create_table' is 'yes': give true or false"),
        ({"key": "a,,b"}, "option 'key' is 'a,,b': give names"),
        ({"table": " "}, "option 'table' is empty"),
        ({"delivery_timeout": "soon"}, "delivery_timeout='soon' is not a duration"),
        ({"ledger_table": "t"}, "table 't' has two purposes"),
        ({"path": "/x"}, "takes no path"),
    ],
)
def test_what_is_wrong_is_said(change: dict[str, Any], sentence: str) -> None:
    given = {name: value for name, value in {**STREAM, **change}.items() if value is not None}
    with pytest.raises(OptionError, match=sentence):
        write_options(OnceflowPostgres.form, given, "writeStream")


def test_a_named_write_needs_a_place_to_remember_it() -> None:
    given = {"url": "postgresql://h/d", "table": "t", "uid": "u"}
    with pytest.raises(OptionError, match=r'with a uid needs \.option\("staging", FOLDER\)'):
        write_options(OnceflowPostgres.form, given, "write")
    assert write_options(OnceflowPostgres.form, {**given, "staging": "/s"}, "write").is_named


def test_one_commit_for_all_writers_and_keys_do_not_go_together() -> None:
    class Keyed(FileSink):
        partition_columns = ("user",)

    def make(given: Any) -> Keyed:
        plain = write_options(OnceflowFiles.form, {"path": "/out"}, "write").sink
        assert isinstance(plain, FileSink)
        return Keyed(plain.url)

    with pytest.raises(OptionError, match=r"onceflow-keyed can't write by key \(user\)"):
        write_options(SinkFormat("onceflow-keyed", make, {}), {}, "write")


def test_numbers_are_numbers() -> None:
    assert number("rows", " 100 ") == 100
    with pytest.raises(OptionError, match="option 'rows' is"):
        number("rows", "1.5")


def test_each_format_has_a_name_of_its_own_and_words_for_who_reads() -> None:
    names = [each.name() for each in FORMATS]
    assert len(set(names)) == len(names)
    for each in FORMATS:
        with pytest.raises(Exception, match=f"{each.name()} is a sink.*: read (a batch )?with"):
            each({}).reader(None)
