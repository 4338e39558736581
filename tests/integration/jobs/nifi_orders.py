"""Flow files of an output port of two nodes of NiFi into files.

onceflow run nifi_orders.py ... -- URL URL FOLDER
"""

from __future__ import annotations

from dataclasses import dataclass

from onceflow import Job
from onceflow.connectors.formats import Json
from onceflow.connectors.nifi import NifiSource


@dataclass(frozen=True)
class Order:
    n: int


def build(arguments: list[str]) -> Job:
    *urls, folder = arguments
    orders = NifiSource(urls=urls, port="orders", value=Json(Order), prefetch=1_000)
    job = Job("nifi-orders")
    job.source(orders, uid="orders").to_files(folder, format="jsonl", uid="out")
    return job
