"""Messages of a super stream of RabbitMQ into files.

onceflow run rabbit_stream_orders.py ... -- URL FOLDER
"""

from __future__ import annotations

from dataclasses import dataclass

from onceflow import Job
from onceflow.connectors.formats import Json
from onceflow.connectors.rabbitmq import RabbitStreamSource


@dataclass(frozen=True)
class Order:
    n: int


def build(arguments: list[str]) -> Job:
    url, folder = arguments
    orders = RabbitStreamSource(
        super_stream="orders",
        url=url,
        value=Json(Order),
        discovery_interval="1 s",
        offset_column="at",
        stream_column="of",
    )
    job = Job("rabbit-stream-orders")
    job.source(orders, uid="orders").to_files(folder, format="jsonl", uid="out")
    return job
