"""Inserts, updates and deletes of a source are in the table as such, also behind an exchange."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest

from onceflow.runtime.api.job import Job, run_job
from onceflow.runtime.api.run_options import run_options
from onceflow.runtime.checkpoint.events import Outcome
from onceflow.runtime.graph.job_graph import (
    ByKey,
    Chain,
    Edge,
    InChain,
    JobGraph,
    OperatorNode,
    SinkNode,
    SourceNode,
    ToEdge,
)
from onceflow.runtime.operators.operator import MAIN
from onceflow.runtime.operators.stateless import Stateless, pass_on
from onceflow.runtime.records import RowKind
from onceflow.runtime.report import Silent
from onceflow.runtime.testing.connectors.folder_source import FolderSource, add_file
from onceflow.runtime.testing.connectors.folder_table import FolderTable

SCHEMA = pa.schema([("user", pa.string()), ("n", pa.int64())])
FILES, ROWS = 6, 40


@pytest.fixture
def changes(tmp_path: Path) -> FolderSource:
    (tmp_path / "in").mkdir()
    for number in range(FILES):
        rows = range(number * ROWS, (number + 1) * ROWS)
        lines = [{"user": f"u{n % 7}", "n": n, "kind": RowKind(n % 4).name.lower()} for n in rows]
        add_file(tmp_path / "in", number + 1, lines)
    return FolderSource(str(tmp_path / "in"), SCHEMA, is_bounded=True, has_kinds=True)


def assert_each_row_has_its_kind(table: FolderTable, numbers: list[int]) -> None:
    rows = sorted(table.read().to_pylist(), key=lambda row: row["n"])
    assert [(row["n"], row["row_kind"]) for row in rows] == [(n, n % 4) for n in numbers]


def test_through_stateless_steps(tmp_path: Path, changes: FolderSource) -> None:
    table = FolderTable(str(tmp_path / "table"), takes_kinds=True)
    job = Job("changes")
    job.source(changes, uid="in").filter(pl.col("n") >= 10).select("user", "n").sink_to(table, uid="out")
    result = job.run(str(tmp_path / "checkpoints"), master="threads[2]", checkpoint_interval="50 ms")
    assert result.outcome is Outcome.FINISHED
    assert_each_row_has_its_kind(table, list(range(10, FILES * ROWS)))


def test_through_an_exchange_between_slots(tmp_path: Path, changes: FolderSource) -> None:
    """No step of a program sends changes by key yet, so the graph is made by hand."""
    table = FolderTable(str(tmp_path / "table"), takes_kinds=True)
    source = SourceNode("in", changes, None, {MAIN: [ToEdge(0)]})
    behind = OperatorNode("same", "same", lambda: Stateless(pass_on), SCHEMA, {MAIN: [InChain("out")]})
    sink = SinkNode("out", table, SCHEMA)
    chains = [Chain(0, "in", {"in": source}), Chain(1, "same", {"same": behind, "out": sink})]
    edge = Edge(0, 0, 1, ByKey(("user",)), SCHEMA, has_event_time=False, with_origin=False, has_kinds=True)
    graph = JobGraph("changes", chains, [edge], 8)
    folder = str(tmp_path / "checkpoints")
    options = run_options(folder, master="threads[2]", parallelism=2, checkpoint_interval="50 ms")
    assert run_job(graph, options, Silent()).outcome is Outcome.FINISHED
    assert_each_row_has_its_kind(table, list(range(FILES * ROWS)))
