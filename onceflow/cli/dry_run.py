"""`--dry-sink FOLDER`: a job whose sinks are files below a folder."""

from __future__ import annotations

from pathlib import Path

from onceflow.runtime.graph.dry_run import dry_run_of
from onceflow.runtime.graph.job_graph import JobGraph


def dry_run(graph: JobGraph, folder: str) -> JobGraph:
    """The graph with each sink replaced by Parquet files in FOLDER/<its uid>. Raises OptionError for a folder
    that can't be one."""
    # Here and not above: most runs are no dry ones.
    from onceflow.sinks.dry_run import DryRunSink

    is_url = "://" in folder
    root = folder.rstrip("/") if is_url else str(Path(folder).absolute())
    return dry_run_of(graph, lambda sink, uid: DryRunSink(sink, f"{root}/{uid}"))
