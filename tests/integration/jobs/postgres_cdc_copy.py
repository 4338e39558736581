"""The changes of a table of PostgreSQL, kept in a folder as they come, and followed by another table.

onceflow run postgres_cdc_copy.py ... -- URL FOLDER
"""

from __future__ import annotations

from dataclasses import dataclass

from onceflow import Job
from onceflow.connectors.postgres_cdc import PostgresCdcSource
from onceflow.runtime.testing.connectors.folder_table import FolderTable
from onceflow.sinks.postgres import PostgresSink


@dataclass(frozen=True)
class Item:
    id: int
    name: str


def build(arguments: list[str]) -> Job:
    url, folder = arguments
    changes = PostgresCdcSource(url=url, table="items", of=Item, slot="items", publication="items")
    job = Job("postgres-cdc-copy")
    rows = job.source(changes, uid="items")
    rows.sink_to(FolderTable(folder, takes_kinds=True), uid="log")
    rows.sink_to(PostgresSink(url, "followed", key="id", create_table=True), uid="followed")
    return job
