"""Made-up records into a store by key: each under its number, and a count for each user.

onceflow run upserted_rows.py ... -- STORE URL RECORDS RATE
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from onceflow import Job
from onceflow.sinks.cassandra import CassandraSink
from onceflow.sinks.opensearch import OpenSearchSink
from onceflow.sinks.redis import RedisSink

USERS = 50


@dataclass(frozen=True)
class Seen:
    number: int
    user: str
    times: int


def seen(n: int) -> Seen:
    return Seen(n, f"u{n % USERS}", 1)


def add(so_far: Seen, one: Seen) -> Seen:
    return Seen(max(so_far.number, one.number), so_far.user, so_far.times + one.times)


def sink_of(store: str, url: str, place: str, key: str) -> Any:
    match store:
        case "redis":
            return RedisSink(url, place, key)
        case "opensearch":
            return OpenSearchSink(url, place, key, create_index=True)
        case "cassandra":
            host, _, port = url.partition(":")
            return CassandraSink(host, "shop", place, key, "cassandra", "cassandra", port=int(port))
    raise ValueError(store)


def build(arguments: list[str]) -> Job:
    store, url, records, rate = arguments
    job = Job(f"{store}-rows")
    rows = job.data_generator(seen, rate=float(rate), count=int(records), uid="seen")
    rows.sink_to(sink_of(store, url, "numbered", "number"), uid="numbered")
    counts = rows.key_by("user").reduce(add, uid="counts")
    counts.sink_to(sink_of(store, url, "counted", "user"), uid="counted")
    return job
