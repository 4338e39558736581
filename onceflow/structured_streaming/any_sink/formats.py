"""The formats that are sinks of the runtime. How to add one: see sink_format.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onceflow.runtime.contracts import Sink
from onceflow.structured_streaming.any_sink.files_format import WRITE_FILES
from onceflow.structured_streaming.any_sink.sink_data_source import SinkDataSource
from onceflow.structured_streaming.any_sink.sink_format import SinkFormat
from onceflow.structured_streaming.any_source.files_form import READ_FILES
from onceflow.structured_streaming.option_texts import json_object, names, number, path, text, yes_or_no


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


def _mysql(given: Mapping[str, Any]) -> Sink:
    from onceflow.sinks.mysql import MySqlSink

    return MySqlSink(**given)


class OnceflowMySql(SinkDataSource):
    """Rows into a table of MySQL or MariaDB: sinks/mysql.py."""

    form = SinkFormat(
        "onceflow-mysql",
        _mysql,
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


class OnceflowFiles(SinkDataSource):
    """Rows into files of a folder: sinks/files.py; and out of files: connectors/files."""

    form = WRITE_FILES
    reading = READ_FILES


def _delta(given: Mapping[str, Any]) -> Sink:
    from onceflow.sinks.delta import DeltaSink

    return DeltaSink(given["path"], **{name: given[name] for name in given if name != "path"})


class OnceflowDelta(SinkDataSource):
    """Rows into a Delta Lake table: sinks/delta.py."""

    form = SinkFormat(
        "onceflow-delta",
        _delta,
        {
            "path": path,
            "key": names,
            "order_by": text,
            "partition_by": names,
            "create_table": yes_or_no,
            "schema_evolution": text,
            "compact_every": number,
            "expire": text,
            "only_writer": yes_or_no,
        },
        needs=("path",),
        instead_of_reading='read with .format("delta")',
    )


def _iceberg(given: Mapping[str, Any]) -> Sink:
    from onceflow.sinks.iceberg import IcebergSink

    return IcebergSink(**given)


def _catalog(name: str, value: str) -> str | Mapping[str, str]:
    """A catalog's name, or its properties as JSON."""
    if not value.lstrip().startswith("{"):
        return text(name, value)
    return json_object(name, value)


class OnceflowIceberg(SinkDataSource):
    """Rows into an Iceberg table: sinks/iceberg.py."""

    form = SinkFormat(
        "onceflow-iceberg",
        _iceberg,
        {
            "catalog": _catalog,
            "table": text,
            "key": names,
            "order_by": text,
            "partition_by": names,
            "create_table": yes_or_no,
            "schema_evolution": text,
            "compact_every": number,
            "expire": text,
        },
        needs=("catalog", "table"),
        instead_of_reading='read with .format("iceberg")',
    )


def _redis(given: Mapping[str, Any]) -> Sink:
    from onceflow.sinks.redis import RedisSink

    return RedisSink(**given)


class OnceflowRedis(SinkDataSource):
    """Rows as keys of Redis: sinks/redis.py."""

    form = SinkFormat(
        "onceflow-redis",
        _redis,
        {
            "url": text,
            "prefix": text,
            "key": names,
            "form": text,
            "expire": text,
            "bad_rows_to": text,
            "delivery_timeout": text,
        },
        needs=("url", "prefix", "key"),
        instead_of_reading="read with a client of Redis",
    )


def _opensearch(given: Mapping[str, Any]) -> Sink:
    from onceflow.sinks.opensearch import OpenSearchSink

    return OpenSearchSink(**given)


class OnceflowOpenSearch(SinkDataSource):
    """Rows as documents of OpenSearch or Elasticsearch: sinks/opensearch.py."""

    form = SinkFormat(
        "onceflow-opensearch",
        _opensearch,
        {
            "url": names,
            "index": text,
            "key": names,
            "create_index": yes_or_no,
            "bad_rows_to": text,
            "headers": json_object,
            "ca_certs": text,
            "ledger_index": text,
            "delivery_timeout": text,
        },
        needs=("url", "index", "key"),
        instead_of_reading="read with a client of OpenSearch",
    )


def _cassandra(given: Mapping[str, Any]) -> Sink:
    from onceflow.sinks.cassandra import CassandraSink

    return CassandraSink(**given)


class OnceflowCassandra(SinkDataSource):
    """Rows into a table of Cassandra: sinks/cassandra.py."""

    form = SinkFormat(
        "onceflow-cassandra",
        _cassandra,
        {
            "hosts": names,
            "keyspace": text,
            "table": text,
            "key": names,
            "username": text,
            "password": text,
            "port": number,
            "tls": yes_or_no,
            "ca_certs": text,
            "check_hostname": yes_or_no,
            "datacenter": text,
            "consistency": text,
            "bad_rows_to": text,
            "ledger_table": text,
            "delivery_timeout": text,
        },
        needs=("hosts", "keyspace", "table", "key"),
        instead_of_reading="read with Cassandra's own connector",
    )


def _http(given: Mapping[str, Any]) -> Sink:
    from onceflow.sinks.http import HttpSink

    return HttpSink(**given)


class OnceflowHttp(SinkDataSource):
    """Rows as requests to a receiver: sinks/http.py."""

    form = SinkFormat(
        "onceflow-http",
        _http,
        {
            "url": text,
            "batch_rows": number,
            "headers": json_object,
            "bad_rows_to": text,
            "answer_timeout": text,
            "delivery_timeout": text,
        },
        needs=("url",),
        instead_of_reading="read with HttpStreamSource, in a job",
    )


FORMATS: tuple[type[SinkDataSource], ...] = (
    OnceflowPostgres,
    OnceflowMySql,
    OnceflowRedis,
    OnceflowOpenSearch,
    OnceflowCassandra,
    OnceflowHttp,
    OnceflowFiles,
    OnceflowDelta,
    OnceflowIceberg,
)
"""All that `onceflow.register` makes known, beside onceflow-kafka."""
