"""Made-up records to a receiver, ten in a request.

onceflow run posted_rows.py ... -- STORE URL RECORDS RATE
"""

from __future__ import annotations

from dataclasses import dataclass

from onceflow import Job
from onceflow.sinks.http import HttpSink


@dataclass(frozen=True)
class Seen:
    number: int


def seen(n: int) -> Seen:
    return Seen(n)


def build(arguments: list[str]) -> Job:
    _, url, records, rate = arguments
    job = Job("posted-rows")
    rows = job.data_generator(seen, rate=float(rate), count=int(records), uid="seen")
    rows.sink_to(HttpSink(url, batch_rows=10), uid="posted")
    return job
