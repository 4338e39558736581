"""Counts the records of each user, from a Delta table, then files, and then a topic, into files: one row
for each record, with the user's count so far.

onceflow run hybrid_counts.py ... -- INPUT_FOLDER OUTPUT_FOLDER SERVERS TOPIC [RATE]
"""

from __future__ import annotations

from dataclasses import dataclass

from onceflow import Job
from onceflow.connectors.delta import delta_source
from onceflow.connectors.files import files_source
from onceflow.connectors.formats import Json
from onceflow.connectors.hybrid import HybridSource
from onceflow.connectors.kafka import KafkaSource


@dataclass(frozen=True)
class Seen:
    user: str
    n: int


def add(so_far: Seen, one: Seen) -> Seen:
    return Seen(so_far.user, so_far.n + one.n)


def build(arguments: list[str]) -> Job:
    folder, output, servers, topic, *rate = arguments
    live = KafkaSource(bootstrap_servers=servers, topics=[topic], value=Json(Seen), start="latest")
    job = Job("hybrid-counts")
    history = [delta_source(f"{folder}/table", Seen), files_source(f"{folder}/*.jsonl", Seen)]
    source = HybridSource([*history, live])
    seen = job.source(source, uid="seen", rate_limit=rate[0] if rate else "8000/s")
    seen.key_by("user").reduce(add, uid="counts").to_files(output, format="jsonl", uid="out")
    return job
