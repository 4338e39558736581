"""Counts the records of each user, from files to files: one row for each record, with the user's count so
far.

onceflow run file_counts.py ... -- INPUT_FOLDER OUTPUT_FOLDER
"""

from __future__ import annotations

from dataclasses import dataclass

from onceflow import Job


@dataclass(frozen=True)
class Seen:
    user: str
    n: int


def add(so_far: Seen, one: Seen) -> Seen:
    return Seen(so_far.user, so_far.n + one.n)


def build(arguments: list[str]) -> Job:
    folder, output = arguments
    job = Job("file-counts")
    seen = job.from_files(f"{folder}/*.jsonl", Seen, watch="50 ms", uid="seen")
    seen.key_by("user").reduce(add, uid="counts").to_files(output, format="jsonl", uid="out")
    return job
