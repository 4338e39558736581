"""The simulated table: a sink that commits once for all its writers, and what it commits to.

The table keeps what is treacherous in real ones. A version is created by conditional put and holds rows
and ledger together. A handle that was read anew accepts the same checkpoint a second time: only who asks
the ledger first is safe. A put may have no answer, and may land later, at the position that it was for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from onceflow.runtime.contracts import (
    Committable,
    CommitterContext,
    PreCommit,
    SinkCommitter,
    SinkContext,
    SinkWriter,
)
from onceflow.runtime.errors import Indeterminate, Retryable
from onceflow.runtime.graph.job_graph import JobGraph, SinkNode
from onceflow.runtime.records import Records
from onceflow.runtime.testing.sim_broker import SimBroker, SimSink, _SimPreCommit, to_rows
from onceflow.runtime.testing.sim_job import RECORD_SCHEMA, SimSource, sim_graph
from onceflow.runtime.testing.sim_rows import Row


@dataclass(frozen=True, slots=True)
class _Put:
    """A request to create a version."""

    version: int
    ledger: int
    rows: Sequence[Row]


@dataclass(slots=True)
class SimTable:
    """Durable: survives every crash of the simulation. Its faults come out of the broker's allowance."""

    broker: SimBroker
    ledgers: list[int] = field(default_factory=list)
    """The ledger of each version of the table."""
    late: list[_Put] = field(default_factory=list)

    def read(self) -> tuple[int, int | None]:
        """The number of versions, and the ledger in the latest."""
        self._arrive("read table")
        return len(self.ledgers), self.ledgers[-1] if self.ledgers else None

    def put(self, version: int, ledger: int, rows: Sequence[Row]) -> None:
        """Create this version, which makes the rows visible. Raises Retryable if it is there."""
        self._arrive("put table")
        put = _Put(version, ledger, rows)
        outcome = self.broker.choices.choose(4, "table: put") if self.broker.resends_left > 0 else 0
        if outcome:
            self.broker.resends_left -= 1
        if outcome == 3:
            self.late.append(put)
            raise Indeterminate("no answer to a put (injected; it may arrive later)")
        is_mine = self._land(put)
        if outcome == 2:
            raise Indeterminate("no answer to a put (injected; it was tried)")
        if outcome == 1:
            self.late.append(put)  # a copy of the same request
        if not is_mine:
            raise Retryable(f"version {version} is there")
        self.broker.on_call("put table done")

    def _arrive(self, call: str) -> None:
        if self.late and self.broker.choices.choose(2, f"a late put lands before {call}"):
            self._land(self.late.pop(0))
        self.broker.on_call(call)

    def _land(self, put: _Put) -> bool:
        if put.version != len(self.ledgers):
            return False
        self.ledgers.append(put.ledger)
        self.broker.visible.extend(put.rows)
        self.broker.on_visible("table", put.rows)
        return True


@dataclass(frozen=True)
class SimTableSink:
    """Rows into the table, one commit for each checkpoint."""

    table: SimTable

    def check(self, schema: pa.Schema, uid: str) -> None:
        pass

    def open_writer(self, context: SinkContext) -> SinkWriter:
        return SimTableWriter(context)

    def open_committer(self, context: CommitterContext) -> SinkCommitter:
        return SimTableCommitter(self.table)


class SimTableWriter:
    """Keeps rows until they are committed; the committable holds them all."""

    def __init__(self, context: SinkContext) -> None:
        self._context = context
        self._rows: list[Row] = []
        self._frozen: dict[int, int] = {}

    def recover(self, committables: Sequence[Committable]) -> None:
        assert not committables, "the committer has committed them"

    def write(self, records: Records) -> None:
        self._rows.extend(to_rows(records.batch))

    def pre_commit(self, checkpoint_id: int) -> PreCommit:
        self._frozen[checkpoint_id] = len(self._rows)
        return _SimPreCommit(self._context, checkpoint_id, list(self._rows))

    def commit(self, checkpoint_id: int) -> None:
        count = self._frozen.get(checkpoint_id, 0)
        del self._rows[:count]
        self._frozen = {n: kept - count for n, kept in self._frozen.items() if n > checkpoint_id}

    def close(self) -> None:
        pass


class SimTableCommitter:
    """Commits on top of the version that was there when it was asked last."""

    def __init__(self, table: SimTable) -> None:
        self._table = table
        self._versions = 0

    def last_committed(self) -> int | None:
        self._versions, ledger = self._table.read()
        return ledger

    def commit(self, checkpoint_id: int, committables: Sequence[Committable]) -> None:
        rows = [tuple(row) for c in committables for row in c.payload["rows"]]
        self._table.put(self._versions, checkpoint_id, rows)

    def close(self) -> None:
        pass


def table_graph(
    source: SimSource, sink: SimSink, max_parallelism: int, has_real_windows: bool = False
) -> JobGraph:
    """The simulated job, its sink "raw" a table beside the others' transactions."""
    graph = sim_graph(source, sink, max_parallelism, has_real_windows)
    nodes = graph.chains[0].nodes
    assert isinstance(nodes, dict)
    nodes["raw"] = SinkNode("raw", SimTableSink(SimTable(sink.broker)), RECORD_SCHEMA)
    return graph
