"""Records of a stream of Kinesis into files.

onceflow run kinesis_orders.py ... -- URL STREAM FOLDER
"""

from __future__ import annotations

from dataclasses import dataclass

from onceflow import Job
from onceflow.connectors.formats import Json
from onceflow.connectors.kinesis import KinesisSource


@dataclass(frozen=True)
class Order:
    n: int


def build(arguments: list[str]) -> Job:
    url, stream, folder = arguments
    orders = KinesisSource(
        stream=stream,
        value=Json(Order),
        region="us-east-1",
        endpoint_url=url,
        partition_key_column="key",
        fetch_interval="20 ms",
        discovery_interval="100 ms",
    )
    job = Job("kinesis-orders")
    job.source(orders, uid="orders").to_files(folder, format="jsonl", uid="out")
    return job
