"""Counts the events of each user, from two streams over HTTP into files: one row for each, with the count.

onceflow run stream_counts.py ... -- URL OUTPUT_FOLDER
"""

from __future__ import annotations

from dataclasses import dataclass

from onceflow import Job
from onceflow.connectors.formats import Json
from onceflow.connectors.http_stream import HttpStreamSource


@dataclass(frozen=True)
class Seen:
    user: str
    n: int


def add(so_far: Seen, one: Seen) -> Seen:
    return Seen(so_far.user, so_far.n + one.n)


def build(arguments: list[str]) -> Job:
    url, output = arguments
    events = HttpStreamSource(urls=[f"{url}/events", f"{url}/events?second"], value=Json(Seen))
    job = Job("stream-counts")
    seen = job.source(events, uid="seen", rate_limit="4000/s")
    seen.key_by("user").reduce(add, uid="counts").to_files(output, format="jsonl", uid="out")
    return job
