"""The formats that are sinks of the runtime. How to add one: see sink_format.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onceflow.runtime.contracts import Sink
from onceflow.structured_streaming.any_sink.sink_data_source import SinkDataSource
from onceflow.structured_streaming.any_sink.sink_format import SinkFormat, names, text, yes_or_no


def _postgres(given: Mapping[str, Any]) -> Sink:
    from onceflow.sinks.postgres import PostgresSink

    return PostgresSink(**given)


class OnceflowPostgres(SinkDataSource):
    """Rows into a table of PostgreSQL: sinks/postgres.py."""

    form = SinkFormat(
        "onceflow-postgres",
        _postgres,
        {
            "url": text,
            "table": text,
            "key": names,
            "bad_rows_to": text,
            "create_table": yes_or_no,
            "ledger_table": text,
            "delivery_timeout": text,
        },
        needs=("url", "table"),
        instead_of_reading='read with .format("jdbc")',
    )


def _files(given: Mapping[str, Any]) -> Sink:
    from onceflow.sinks.files import file_sink

    path = str(given["path"])
    if path.startswith("file:/") and not path.startswith("file://"):  # as Spark writes URLs
        path = path.removeprefix("file:")
    return file_sink(path, given.get("format", "parquet"), None)


class OnceflowFiles(SinkDataSource):
    """Rows into files of a folder: sinks/files.py."""

    form = SinkFormat(
        "onceflow-files",
        _files,
        {"path": text, "format": text},
        needs=("path",),
        instead_of_reading='read with .format("parquet"), "json" or "csv"',
    )


FORMATS: tuple[type[SinkDataSource], ...] = (OnceflowPostgres, OnceflowFiles)
"""All that `onceflow.register` makes known, beside onceflow-kafka."""
