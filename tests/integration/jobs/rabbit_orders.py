"""Messages of two queues of RabbitMQ into files.

onceflow run rabbit_orders.py ... -- URL FOLDER
"""

from __future__ import annotations

from dataclasses import dataclass

from onceflow import Job
from onceflow.connectors.formats import Json
from onceflow.connectors.rabbitmq import RabbitQueueSource


@dataclass(frozen=True)
class Order:
    n: int


def build(arguments: list[str]) -> Job:
    url, folder = arguments
    orders = RabbitQueueSource(queues=["a", "b"], url=url, value=Json(Order), prefetch=1_000)
    job = Job("rabbit-orders")
    job.source(orders, uid="orders").to_files(folder, format="jsonl", uid="out")
    return job
