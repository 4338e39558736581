"""Copies numbers into files, from a folder that files are added to, from streams over HTTP, or from files and
then a topic.

onceflow run copied_numbers.py ... -- OUTPUT_FOLDER files PATTERN STORAGE_OPTIONS_AS_JSON
onceflow run copied_numbers.py ... -- OUTPUT_FOLDER streams URL URL
onceflow run copied_numbers.py ... -- OUTPUT_FOLDER hybrid PATTERN SERVERS TOPIC
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from onceflow import Job
from onceflow.connectors.files import files_source
from onceflow.connectors.formats import Json
from onceflow.connectors.http_stream import HttpStreamSource
from onceflow.connectors.hybrid import HybridSource
from onceflow.connectors.kafka import KafkaSource


@dataclass(frozen=True)
class Number:
    n: int


def build(arguments: list[str]) -> Job:
    output, kind, *places = arguments
    job = Job("copied-numbers")
    if kind == "streams":
        numbers = job.source(HttpStreamSource(urls=places, value=Json(Number)), uid="numbers")
    elif kind == "hybrid":
        pattern, servers, topic = places
        live = KafkaSource(bootstrap_servers=servers, topics=[topic], value=Json(Number), start="earliest")
        both = HybridSource([files_source(pattern, Number), live])
        numbers = job.source(both, uid="numbers", rate_limit="1000/s")
    else:
        pattern, options = places
        far = {"watch": "500 ms" if "://" in pattern else "100 ms", "storage_options": json.loads(options)}
        numbers = job.from_files(pattern, Number, uid="numbers", **far)
    numbers.to_files(output, format="jsonl", uid="out")
    return job
