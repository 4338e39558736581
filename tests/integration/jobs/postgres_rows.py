"""Made-up records into PostgreSQL: each appended to two tables, one of them by prepared transactions, and a
count for each user kept in a third.

onceflow run postgres_rows.py ... -- URL RECORDS RATE
"""

from __future__ import annotations

from dataclasses import dataclass

from onceflow import Job
from onceflow.sinks.postgres import PostgresSink

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


def build(arguments: list[str]) -> Job:
    url, records, rate = arguments
    job = Job("postgres-rows")
    rows = job.data_generator(seen, rate=float(rate), count=int(records), uid="seen")
    rows.sink_to(PostgresSink(url, "appended", create_table=True), uid="appended")
    prepared = PostgresSink(url, "prepared", create_table=True, two_phase=True)
    rows.sink_to(prepared, uid="prepared")
    counts = rows.key_by("user").reduce(add, uid="counts")
    counts.sink_to(PostgresSink(url, "counted", key="user", create_table=True), uid="counted")
    return job
