"""Bids of Nexmark into files.

onceflow run nexmark_bids.py ... -- FOLDER EVENTS RATE
"""

from __future__ import annotations

import polars as pl

from onceflow import Job
from onceflow.connectors.nexmark import nexmark


def build(arguments: list[str]) -> Job:
    folder, events, rate = arguments
    job = Job("nexmark-bids")
    bids = job.source(nexmark("bid", events=int(events), rate=float(rate)), uid="bids")
    bids.select(pl.col("auction"), pl.col("extra")).to_files(folder, format="jsonl", uid="out")
    return job
