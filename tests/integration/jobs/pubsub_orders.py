"""Messages of two subscriptions of Pub/Sub into files.

onceflow run pubsub_orders.py ... -- HOST FOLDER
"""

from __future__ import annotations

from dataclasses import dataclass

from onceflow import Job
from onceflow.connectors.formats import Json
from onceflow.connectors.pubsub import PubSubSource


@dataclass(frozen=True)
class Order:
    n: int


def build(arguments: list[str]) -> Job:
    host, folder = arguments
    orders = PubSubSource(
        subscriptions=["a", "b"],
        project_id="shop",
        emulator_host=host,
        value=Json(Order),
        prefetch=1_000,
        ack_deadline="2 s",
    )
    job = Job("pubsub-orders")
    job.source(orders, uid="orders").to_files(folder, format="jsonl", uid="out")
    return job
