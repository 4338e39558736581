"""Copies numbers into files, from a folder that files are added to, or from streams over HTTP.

onceflow run copied_numbers.py ... -- OUTPUT_FOLDER PATTERN
onceflow run copied_numbers.py ... -- OUTPUT_FOLDER URL URL
"""

from __future__ import annotations

from dataclasses import dataclass

from onceflow import Job
from onceflow.connectors.formats import Json
from onceflow.connectors.http_stream import HttpStreamSource


@dataclass(frozen=True)
class Number:
    n: int


def build(arguments: list[str]) -> Job:
    output, *places = arguments
    job = Job("copied-numbers")
    if places[0].startswith("http"):
        numbers = job.source(HttpStreamSource(urls=places, value=Json(Number)), uid="numbers")
    else:
        numbers = job.from_files(places[0], Number, watch="100 ms", uid="numbers")
    numbers.to_files(output, format="jsonl", uid="out")
    return job
