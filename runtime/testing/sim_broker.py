"""The simulated outside: a broker with transactions and fencing, and a sink that uses it.

The broker keeps what kafka-transactions.md found on the real one: a transactional id with an epoch that
`init` raises, one open transaction per id, a ledger that is written in the transaction, and EndTxn
requests whose first copy arrives late, after the client's resend was answered. The sink follows the
staged protocol of `sinks/kafka.py` in its smallest form, so that the simulation can search its order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from onceflow.runtime.contracts import Committable, PreCommit, SinkContext, SinkWriter
from onceflow.runtime.errors import Fenced, Indeterminate
from onceflow.runtime.records import Records
from onceflow.runtime.testing.choices import Choices
from onceflow.runtime.testing.sim_rows import RAW, REAL_WINDOW, RUNNING, WINDOW, Row


@dataclass(slots=True)
class _Transactions:
    """One transactional id at the broker."""

    epoch: int = -1
    rows: list[Row] = field(default_factory=list)
    ledger: int | None = None
    """What the open transaction will set the ledger to."""


@dataclass(slots=True)
class SimBroker:
    """Durable: survives every crash of the simulation."""

    choices: Choices
    resends_left: int = 0
    """How many more EndTxn requests have a late first copy."""
    visible: list[Row] = field(default_factory=list)
    ledgers: dict[str, int] = field(default_factory=dict)
    on_visible: Callable[[str, Sequence[Row]], None] = lambda transactional_id, rows: None
    on_call: Callable[[str], None] = lambda call: None
    """Called before and after each request: a crash may hit its sender here."""
    _ids: dict[str, _Transactions] = field(default_factory=dict)
    late: list[tuple[str, int]] = field(default_factory=list)
    """(transactional id, epoch) of EndTxn copies that are still on their way."""

    def init(self, transactional_id: str) -> int:
        """A new epoch; an open transaction of older ones is aborted, their later requests are fenced."""
        self._arrive("init")
        state = self._ids.setdefault(transactional_id, _Transactions())
        state.epoch += 1
        state.rows, state.ledger = [], None
        self.on_call("init done")
        return state.epoch

    def read_ledger(self, transactional_id: str) -> int:
        self._arrive("ledger")
        return self.ledgers.get(transactional_id, -1)

    def produce(self, transactional_id: str, epoch: int, rows: Sequence[Row]) -> None:
        self._arrive("produce")
        self._checked(transactional_id, epoch).rows.extend(rows)
        self.on_call("produce done")

    def add_ledger(self, transactional_id: str, epoch: int, checkpoint_id: int) -> None:
        self._arrive("add ledger")
        self._checked(transactional_id, epoch).ledger = checkpoint_id
        self.on_call("add ledger done")

    def commit(self, transactional_id: str, epoch: int) -> bool:
        """True: the client's library resent the request, and a late first copy may be on its way."""
        self._arrive("commit")
        self._checked(transactional_id, epoch)
        outcome = self.choices.choose(4, "broker: commit") if self.resends_left > 0 else 0
        if outcome:
            self.resends_left -= 1
        if outcome == 3:
            self.late.append((transactional_id, epoch))
            raise Indeterminate("no answer to EndTxn (injected; it may arrive later)")
        self._end(transactional_id)
        if outcome == 2:
            raise Indeterminate("no answer to EndTxn (injected; it was done)")
        if outcome == 1:
            self.late.append((transactional_id, epoch))
        self.on_call("commit done")
        return outcome == 1

    def land_late(self, index: int = 0) -> None:
        """A late EndTxn arrives: it ends whatever is open, if its epoch is still the current one."""
        transactional_id, epoch = self.late.pop(index)
        if self._ids[transactional_id].epoch == epoch:
            self._end(transactional_id)

    def _arrive(self, call: str) -> None:
        if self.late and self.choices.choose(2, f"a late EndTxn lands before {call}"):
            self.land_late()
        self.on_call(call)

    def _checked(self, transactional_id: str, epoch: int) -> _Transactions:
        state = self._ids[transactional_id]
        if state.epoch != epoch:
            raise Fenced(f"{transactional_id}: epoch {epoch} was fenced by {state.epoch}")
        return state

    def _end(self, transactional_id: str) -> None:
        state = self._ids[transactional_id]
        rows, state.rows = state.rows, []
        if state.ledger is not None:
            self.ledgers[transactional_id] = state.ledger
            state.ledger = None
        self.visible.extend(rows)
        self.on_visible(transactional_id, rows)


@dataclass(frozen=True)
class SimSink:
    """Rows into the broker, exactly once."""

    broker: SimBroker
    writer: Callable[[SimBroker, SinkContext], SinkWriter] | None = None

    def check(self, schema: pa.Schema, uid: str) -> None:
        pass

    def open_writer(self, context: SinkContext) -> SinkWriter:
        return (self.writer or SimSinkWriter)(self.broker, context)


class SimSinkWriter:
    """The staged protocol: the committable holds the rows; init, then ledger, then write."""

    def __init__(self, broker: SimBroker, context: SinkContext) -> None:
        self._broker = broker
        self._context = context
        self._rows: list[Row] = []
        """Written and not committed, also of aborted checkpoints."""
        self._frozen: dict[int, int] = {}
        """How many of them belong to a checkpoint."""
        self._producers: dict[str, int] = {}
        """Epoch by transactional id, for those that are in no doubt."""

    def write(self, records: Records) -> None:
        self._rows.extend(to_rows(records.batch))

    def pre_commit(self, checkpoint_id: int) -> PreCommit:
        self._frozen[checkpoint_id] = len(self._rows)
        return _SimPreCommit(self._context, checkpoint_id, list(self._rows))

    def recover(self, committables: Sequence[Committable]) -> None:
        for committable in committables:
            rows = [tuple(row) for row in committable.payload["rows"]]
            self._commit_once(self._id(committable.owner), committable.checkpoint_id, rows)
        if self._id(str(self._context.subtask)) not in self._producers:
            self._producer(self._id(str(self._context.subtask)))

    def commit(self, checkpoint_id: int) -> None:
        count = self._frozen.get(checkpoint_id, 0)
        self._commit_once(self._id(str(self._context.subtask)), checkpoint_id, self._rows[:count])
        # 3. Known to be visible: only now it is forgotten.
        del self._rows[:count]
        self._frozen = {n: kept - count for n, kept in self._frozen.items() if n > checkpoint_id}

    def close(self) -> None:
        pass

    def _id(self, owner: str) -> str:
        return f"{self._context.lineage}.{self._context.uid}.{owner}"

    def _commit_once(self, transactional_id: str, checkpoint_id: int, rows: Sequence[Row]) -> None:
        for _ in range(10):
            try:
                # 1. A producer in no doubt has fenced all before it; only after that the ledger is final.
                epoch = self._producer(transactional_id)
                if self._broker.read_ledger(transactional_id) >= checkpoint_id:
                    return
                # 2. Rows and ledger become visible together, or not at all.
                for start in range(0, len(rows), 2):
                    self._broker.produce(transactional_id, epoch, rows[start : start + 2])
                self._broker.add_ledger(transactional_id, epoch, checkpoint_id)
                if self._broker.commit(transactional_id, epoch):
                    self._doubt(transactional_id)
                return
            except Indeterminate:
                self._doubt(transactional_id)
        raise AssertionError("more faults than the world has")

    def _producer(self, transactional_id: str) -> int:
        if transactional_id not in self._producers:
            self._producers[transactional_id] = self._broker.init(transactional_id)
        return self._producers[transactional_id]

    def _doubt(self, transactional_id: str) -> None:
        """A copy of a request may be on its way: the next transaction needs a new epoch."""
        self._producers.pop(transactional_id, None)


class _SimPreCommit:
    def __init__(self, context: SinkContext, checkpoint_id: int, rows: Sequence[Row]) -> None:
        self._context = context
        self._checkpoint_id = checkpoint_id
        self._rows = rows

    def stage(self) -> Committable:
        owner = str(self._context.subtask)
        return Committable(self._context.uid, owner, self._checkpoint_id, {"rows": self._rows})


def to_rows(batch: pa.RecordBatch) -> list[Row]:
    """A sink's rows in the form of the expected output."""
    columns = [column.to_pylist() for column in batch.columns]
    if batch.schema.names[0] == "id":
        return [(RAW, record_id) for record_id in columns[0]]
    if batch.schema.names[0] == "key":
        return [(REAL_WINDOW, *row) for row in zip(columns[0], *columns[2:], strict=True)]
    rows: list[Row] = []
    for kind, key, at, count, total in zip(*columns, strict=True):
        rows.append((WINDOW, key, at, count, total) if kind == WINDOW else (RUNNING, key, count))
    return rows
