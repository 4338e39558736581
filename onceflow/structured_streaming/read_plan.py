"""ReadPlan: what goes from the process that plans to those that read."""

from __future__ import annotations

from dataclasses import dataclass

from onceflow.structured_streaming.source_columns import Columns
from onceflow.structured_streaming.source_options import SourceOptions


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """All that a task needs beside its range. Pickled. `token` is the same for all tasks of a query."""

    token: str
    options: SourceOptions
    columns: Columns
