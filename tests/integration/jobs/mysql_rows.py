"""Made-up records into MySQL: each appended to a table, and a count for each user kept in another.

onceflow run mysql_rows.py ... -- mysql URL RECORDS RATE
"""

from __future__ import annotations

from dataclasses import dataclass

from onceflow import Job
from onceflow.sinks.mysql import MySqlSink

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
    _, url, records, rate = arguments
    job = Job("mysql-rows")
    rows = job.data_generator(seen, rate=float(rate), count=int(records), uid="seen")
    rows.sink_to(MySqlSink(url, "appended", create_table=True), uid="appended")
    counts = rows.key_by("user").reduce(add, uid="counts")
    counts.sink_to(MySqlSink(url, "counted", key="user", create_table=True), uid="counted")
    return job
