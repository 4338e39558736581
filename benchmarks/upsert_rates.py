"""Rows that a sink upserts into a store a second, and a CPU-second of its process: `python
benchmarks/upsert_rates.py redis://HOST:PORT/0 [ROWS]`, or `http://HOST:9200` for OpenSearch, or
`cassandra://HOST:PORT/KEYSPACE`, as cassandra with the password in CASSANDRA_PASSWORD, and with a table
`rates (id bigint PRIMARY KEY, name text, price double, n bigint)` there."""

from __future__ import annotations

import sys
import time
from urllib.parse import urlsplit

import pyarrow as pa

from onceflow.runtime.checkpoint.memory_store import MemoryStore
from onceflow.runtime.checkpoint.staged_files import AttemptStagedFiles
from onceflow.runtime.clock import SystemClock
from onceflow.runtime.contracts import Sink, SinkContext
from onceflow.runtime.records import Records
from onceflow.sinks.cassandra import CassandraSink
from onceflow.sinks.opensearch import OpenSearchSink
from onceflow.sinks.redis import RedisSink

BATCH = 10_000
SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("price", pa.float64()), ("n", pa.int64())])


def sinks(url: str) -> dict[str, Sink]:
    """The sinks for the store that the URL is of, by name."""
    if url.startswith("redis"):
        return {
            "hash": RedisSink(url, "rates-hash", "id"),
            "json": RedisSink(url, "rates-json", "id", form="json"),
        }
    if url.startswith("http"):
        return {"documents": OpenSearchSink(url, f"rates-{time.time_ns()}", "id", create_index=True)}
    if url.startswith("cassandra"):
        at = urlsplit(url)
        login = ("cassandra", "${CASSANDRA_PASSWORD}")
        place = (str(at.hostname), at.path[1:], "rates", "id")
        return {"rows": CassandraSink(*place, *login, port=at.port or 9042)}
    raise SystemExit(f"no sink for {url}")


def batch(first: int) -> pa.RecordBatch:
    ids = range(first, first + BATCH)
    columns = [ids, [f"name of {n}" for n in ids], [n / 8 for n in ids], [n % 1000 for n in ids]]
    return pa.record_batch([pa.array(column) for column in columns], schema=SCHEMA)


def main(url: str, rows: int) -> None:
    batches = [Records(batch(first)) for first in range(0, rows, BATCH)]
    for name, sink in sinks(url).items():
        files = AttemptStagedFiles(MemoryStore(), 1, "out", 0)
        context = SinkContext("rates", str(time.time_ns()), "out", 0, 1, 1, 0, files, SystemClock(), SCHEMA)
        writer = sink.open_writer(context)
        writer.recover([])
        for number, what in enumerate(("new", "again"), 1):
            for each in batches:
                writer.write(each)
            writer.pre_commit(number).stage()
            began, cpu = time.perf_counter(), time.process_time()
            writer.commit(number)
            seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - cpu
            rate, cpu_rate = rows / seconds, rows / cpu_seconds
            print(
                f"{name} {what}: {rate:,.0f} rows/s, {cpu_rate:,.0f} rows a CPU-second of the sink's process"
            )
        writer.close()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 200_000)
