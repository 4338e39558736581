"""The committers in the driver: asked before each commit; ahead is an error, and so is a newer attempt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pytest

from onceflow.runtime.checkpoint.manifest import CheckpointManifest
from onceflow.runtime.clock import ManualClock
from onceflow.runtime.contracts import Committable, CommitterContext, NoFiles
from onceflow.runtime.contracts.sink import WentBack
from onceflow.runtime.driver.committers import Committers
from onceflow.runtime.errors import DataLossError, Fenced, Indeterminate
from onceflow.runtime.graph.job_graph import Chain, JobGraph, SinkNode

EMPTY = pa.schema([])


@dataclass
class Ledger:
    """A sink whose committer writes its calls down."""

    committed: int | None = None
    calls: list[object] = field(default_factory=list)
    fails_after: bool = False

    def check(self, schema: pa.Schema, uid: str) -> None: ...

    def open_writer(self, context: Any) -> Any: ...

    def open_committer(self, context: CommitterContext) -> Ledger:
        self.calls.append((context.uid, context.lineage, context.attempt, context.restored_checkpoint_id))
        return self

    def last_committed(self) -> int | None:
        self.calls.append("ask")
        return self.committed

    def commit(self, checkpoint_id: int, committables: Sequence[Committable]) -> None:
        self.calls.append((checkpoint_id, [c.owner for c in committables]))
        self.committed = checkpoint_id
        if self.fails_after:
            self.fails_after = False
            raise Indeterminate("no answer")

    def close(self) -> None:
        self.calls.append("close")


@dataclass
class Undoing(Ledger):
    """Its committer can take back."""

    def take_back(self, checkpoint_id: int, went_back: WentBack, committables: Sequence[Committable]) -> None:
        self.calls.append((checkpoint_id, went_back.to, [c.owner for c in committables]))
        self.committed = checkpoint_id


class Plain:
    def check(self, schema: pa.Schema, uid: str) -> None: ...

    def open_writer(self, context: Any) -> Any: ...


def committers(**sinks: Any) -> Committers:
    nodes = {uid: SinkNode(uid, sink, EMPTY) for uid, sink in sinks.items()}
    return Committers(JobGraph("job", [Chain(0, "head", nodes)], []), ManualClock(), NoFiles())


def manifest(checkpoint_id: int, *promised: tuple[str, str]) -> CheckpointManifest:
    committables = [Committable(uid, owner, checkpoint_id, {}) for uid, owner in promised]
    return CheckpointManifest("job", "beef", 1, checkpoint_id, 0, 0, 2, 8, committables=committables)


def test_what_was_promised_is_committed_at_the_restore_and_the_rest_is_for_the_slots() -> None:
    table = Ledger()
    job = committers(table=table, plain=Plain())
    assert job
    rest = job.restore(3, manifest(7, ("table", "0"), ("plain", "0"), ("table", "1")))
    assert [c.uid for c in rest.committables] == ["plain"]
    assert table.calls == [("table", "beef", 3, 7), "ask", "ask", (7, ["0", "1"])]


def test_what_was_committed_is_not_committed_again() -> None:
    table = Ledger(committed=7)
    committers(table=table).restore(3, manifest(7, ("table", "0")))
    assert (7, ["0"]) not in table.calls


def test_after_an_unknown_outcome_the_ledger_is_asked() -> None:
    table = Ledger()
    job = committers(table=table)
    job.restore(1, manifest(0))
    table.calls.clear()
    table.fails_after = True
    promised = manifest(1, ("table", "0"))
    with pytest.raises(Indeterminate):
        job.commit(promised)
    job.commit(promised)
    assert table.calls == ["ask", (1, ["0"]), "ask"]


def test_a_sink_that_promised_nothing_is_not_asked() -> None:
    table = Ledger()
    job = committers(table=table)
    job.restore(1, manifest(0))
    table.calls.clear()
    job.commit(manifest(1))
    assert table.calls == []


def test_output_that_is_ahead_of_the_restored_checkpoint_is_told() -> None:
    with pytest.raises(DataLossError, match=r"sink 'table' has committed checkpoint 9, .* checkpoint 7: its"):
        committers(table=Ledger(committed=9)).restore(3, manifest(7))


def test_a_newer_attempt_fences() -> None:
    table = Ledger()
    job = committers(table=table)
    job.restore(1, manifest(0))
    table.committed = 5
    with pytest.raises(Fenced, match="a newer attempt has committed checkpoint 5 of sink 'table'"):
        job.commit(manifest(1, ("table", "0")))


def test_each_attempt_opens_anew_and_the_end_closes() -> None:
    table = Ledger()
    job = committers(table=table)
    job.restore(1, manifest(0))
    job.restore(2, manifest(0))
    job.close()
    job.close()
    opened_and_closed = [call for call in table.calls if call != "ask"]
    assert opened_and_closed == [("table", "beef", 1, 0), "close", ("table", "beef", 2, 0), "close"]


def test_a_job_without_such_sinks_has_none() -> None:
    assert not committers(plain=Plain())


def copied(checkpoint_id: int, *promised: tuple[str, str]) -> CheckpointManifest:
    """The copy of a checkpoint, under the id 9."""
    return replace(manifest(checkpoint_id, *promised), checkpoint_id=9, went_back=WentBack(checkpoint_id, 8))


def test_a_copy_is_committed_by_taking_back_once() -> None:
    table = Undoing(committed=8)
    job = committers(table=table)
    job.restore(3, copied(5, ("table", "0")))
    assert table.calls[-1] == (9, 5, ["0"])
    job.restore(4, copied(5, ("table", "0")))
    assert table.calls.count((9, 5, ["0"])) == 1, "its ledger says that it was done"


@pytest.mark.parametrize(("said", "commits"), [(8, []), (5, []), (4, [(5, ["0"])]), (None, [(5, ["0"])])])
def test_what_the_older_checkpoint_promised_is_committed(said: int | None, commits: list[object]) -> None:
    table, undoing = Ledger(committed=said), Undoing(committed=said)
    committers(table=table, undoing=undoing).restore(3, copied(5, ("table", "0"), ("undoing", "0")))
    assert [call for call in table.calls if call == (5, ["0"])] == commits
    done = [call for call in undoing.calls if isinstance(call, tuple)][1:]
    assert done == [*commits, (9, 5, ["0"])], "and only then is anything taken back"


def test_output_beyond_the_copy_is_told() -> None:
    with pytest.raises(DataLossError, match="has committed checkpoint 12"):
        committers(table=Undoing(committed=12)).restore(3, copied(5))
