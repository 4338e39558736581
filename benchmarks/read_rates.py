"""Records that one reader reads a second, and a CPU-second of its process, from a server that is started
here: `python -m benchmarks.read_rates http|kinesis|nifi|pubsub [RECORDS]`.

The reader is in a process of its own, without a job around it; messages are JSON of about 60 bytes with two
fields. Queues are acknowledged once a second.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from onceflow.connectors.formats import Json
from onceflow.runtime.clock import SystemClock
from onceflow.runtime.contracts import AcknowledgingReader, ReaderContext, Source
from tests.kinesis_server import CREDENTIALS, KinesisServer
from tests.nifi_server import NifiServer
from tests.pubsub_server import PROJECT, PubSubServer
from tests.stream_server import StreamServer

SCHEMA = pa.schema([("n", pa.int64()), ("text", pa.string())])
Given = dict[str, Any]


def row(n: int) -> dict[str, Any]:
    return {"n": n, "text": f"the text of record number {n:06d}"}


def body(n: int) -> bytes:
    return json.dumps(row(n)).encode()


@contextlib.contextmanager
def http(count: int) -> Iterator[Given]:
    server = StreamServer()
    server.add(*(row(n) for n in range(count)))
    with server.running():
        yield {"urls": [f"{server.url}/events"]}


@contextlib.contextmanager
def kinesis(count: int) -> Iterator[Given]:
    with KinesisServer(reshards=True) as server:
        os.environ |= CREDENTIALS
        stream = server.new_stream(1)
        for first in range(0, count, 500):
            server.put_many(stream, [("k", body(n)) for n in range(first, min(first + 500, count))])
        yield {"stream": stream, **server.place}


@contextlib.contextmanager
def nifi(count: int) -> Iterator[Given]:
    with NifiServer() as server:
        server.put(server.create("rows"), map(body, range(count)))
        yield {"urls": [server.url], "port": "rows"}


@contextlib.contextmanager
def pubsub(count: int) -> Iterator[Given]:
    with PubSubServer() as server:
        server.create("rows")
        server.publish("rows", map(body, range(count)))
        yield {"subscriptions": ["rows"], "project_id": PROJECT, "emulator_host": server.host}


def source_of(kind: str, given: Given) -> Source:
    if kind == "http":
        from onceflow.connectors.http_stream import HttpStreamSource

        return HttpStreamSource(**given, value=Json(SCHEMA))
    if kind == "kinesis":
        from onceflow.connectors.kinesis import KinesisSource

        return KinesisSource(**given, value=Json(SCHEMA), fetch_interval="1 ms")
    if kind == "nifi":
        from onceflow.connectors.nifi import NifiSource

        return NifiSource(**given, value=Json(SCHEMA))
    from onceflow.connectors.pubsub import PubSubSource

    return PubSubSource(**given, value=Json(SCHEMA))


def read(kind: str, given: Given, count: int) -> None:
    source = source_of(kind, given)
    context = ReaderContext("rates", "read", 0, 1, SystemClock(), checkpoint_interval_ms=1_000)
    reader: Any = source.open_reader(context)
    reader.add_splits(source.open_enumerator("rates", SystemClock()).initial_splits())
    seen = checkpoint_id = 0
    began, cpu = time.perf_counter(), time.process_time()
    acknowledged = began
    while seen < count:
        fetch = reader.poll(50, 10_000)
        seen += 0 if fetch is None else fetch.records.num_rows
        if fetch is None:
            time.sleep(0.001)
        now = time.perf_counter()
        if now - acknowledged >= 1:
            acknowledged, checkpoint_id = now, checkpoint_id + 1
            if isinstance(reader, AcknowledgingReader):
                reader.on_barrier(checkpoint_id)
                reader.on_completed(checkpoint_id)
            reader.snapshot()
    seconds, cpu_s = time.perf_counter() - began, time.process_time() - cpu
    reader.close()
    print(
        f"{kind}: {seen:,} records, {seen / seconds:,.0f} a second, {seen / cpu_s:,.0f} a CPU-second of the "
        "reader's process"
    )


def main(kind: str, count: int) -> None:
    servers = {"http": http, "kinesis": kinesis, "nifi": nifi, "pubsub": pubsub}
    with servers[kind](count) as given:
        reading = multiprocessing.get_context("spawn").Process(target=read, args=(kind, given, count))
        reading.start()
        reading.join()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 100_000)
