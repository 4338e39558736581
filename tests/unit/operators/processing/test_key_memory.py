"""KeyMemory: what has expired leaves memory, and what becomes of state when its ttl has changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from onceflow.runtime.clock import ManualClock
from onceflow.runtime.errors import UserFunctionError
from onceflow.runtime.operators.processing.keyed_process import Ctx, KeyedProcess
from onceflow.runtime.operators.processing.process import ProcessConfig, ProcessOperator
from onceflow.runtime.state.declared_state import State
from onceflow.runtime.state.handles import MapState, ValueState
from onceflow.runtime.state.sweep import FORGOTTEN_MAX
from onceflow.runtime.testing.harness import OperatorHarness
from onceflow.runtime.types.columns_of_records import RecordWriter
from onceflow.runtime.types.record_types import arrow_schema
from onceflow.runtime.types.records_of_columns import RecordReader


@dataclass(frozen=True, slots=True)
class Visit:
    user: int


@dataclass(frozen=True, slots=True)
class Found:
    user: int
    visits: int | None


def remembering(declared: State) -> type[KeyedProcess[int, Visit, Found]]:
    """Yields what it remembers of a user, and counts one more visit."""

    class Remember(KeyedProcess[int, Visit, Found]):
        visits: Any = declared

        def process(self, visit: Visit, ctx: Ctx) -> Iterator[Found]:
            is_map = isinstance(self.visits, MapState)
            found = self.visits.get("n") if is_map else self.visits.get()
            self.visits.put("n", (found or 0) + 1) if is_map else self.visits.set((found or 0) + 1)
            yield Found(visit.user, found)

    return Remember


def value(**options: Any) -> State:
    return ValueState("visits", int, **options)


def entries(**options: Any) -> State:
    return MapState("visits", str, int, **options)


class Job:
    """The operator, restored with whatever state it is to have next."""

    def __init__(self, declared: State, states: Any = None, parallelism: int = 1, clock: Any = None) -> None:
        def create() -> ProcessOperator:
            schema = arrow_schema(Visit)
            made, reader = RecordWriter(arrow_schema(Found)), RecordReader(Visit)
            process = remembering(declared)()
            return ProcessOperator(ProcessConfig("visits", process, ("user",), schema, made, reader, True))

        self.clock = clock or ManualClock()
        self.harness = OperatorHarness(create, ["user"], parallelism, 8, states, self.clock)

    def with_state(self, declared: State, parallelism: int = 1) -> Job:
        return Job(declared, self.harness.snapshot(), parallelism, self.clock)

    def visit(self, at: int, *users: int) -> list[int | None]:
        self.harness.out.emitted.clear()
        self.harness.push(pa.record_batch({"user": users}, arrow_schema(Visit)), [at] * len(users))
        found = {row["user"]: row["visits"] for row in self.harness.rows()}
        return [found[user] for user in users]

    @property
    def rows(self) -> int:
        return sum(len(op._memory.table) for op in self.harness.subtasks)  # type: ignore[attr-defined]


@pytest.mark.parametrize("declare", [value, entries])
def test_many_keys_that_come_once_leave_memory(declare: Callable[..., State]) -> None:
    job = Job(declare(ttl=1_000))
    batches, of_batch = 6, FORGOTTEN_MAX
    for n in range(batches):
        job.visit(1_000, *range(n * of_batch, (n + 1) * of_batch))
    assert job.rows == batches * of_batch
    fell = [job.rows]
    for step in range(2 * batches):
        job.harness.advance(2_000 + step)
        fell.append(job.rows)
        job.visit(3_000 + step, -1)  # one who comes again and again
    assert fell[0] == fell[1] == batches * of_batch, "one watermark takes one piece"
    assert fell[-1] == 1
    assert job.visit(3_100, -1, 5) == [2 * batches, None]


def test_barriers_alone_clean_up_too() -> None:
    clock = ManualClock()
    job = Job(value(ttl=1_000, ttl_time="processing"), clock=clock)
    job.visit(0, *range(2 * FORGOTTEN_MAX))
    clock.advance(1_000)
    for _ in range(2):
        job.harness.snapshot()
    assert job.rows == 0


def test_memory_is_bounded_by_the_keys_that_are_alive() -> None:
    job, alive = Job(value(ttl=1_000)), 10 * 200
    most = 0
    for step in range(60):
        at = 100 * step
        job.visit(at, *range(200 * step, 200 * (step + 1)))
        job.harness.advance(at)
        most = max(most, job.rows)
    assert alive <= most <= 2.3 * alive, "half of the rows may be of keys that are gone"


def test_the_snapshot_says_when_something_expires() -> None:
    job = Job(entries(ttl=1_000))
    job.visit(70, 1)
    (state,) = job.harness.snapshot()
    [piece] = state.batches("keys")
    assert piece.schema.names == ["key_group", "key", "state", "expires", "timers"]
    [row] = piece.to_pylist()
    assert row["state"] == {"visits": [{"key": "n", "value": 1}]}
    assert row["expires"] == {"visits": [1_070]}


def test_what_one_subtask_saw_expire_no_other_sees_after_a_rescale() -> None:
    job = Job(value(ttl=1_000), parallelism=2)
    job.visit(0, *range(40))
    job.harness.advance(1_000, subtask=0)
    job.harness.advance(500, subtask=1)
    gone = [u for u in range(40) if u in users_of(job, 0)]
    assert 0 < len(gone) < 40
    rescaled = job.with_state(value(ttl=1_000), parallelism=3)
    found = dict(zip(range(40), rescaled.visit(600, *range(40)), strict=True))
    assert [u for u, visits in found.items() if visits is None] == gone


def users_of(job: Job, subtask: int) -> list[int]:
    table = job.harness.subtasks[subtask]._memory.table  # type: ignore[attr-defined]
    return table.keys(np.arange(table.size)).column("user").to_pylist()  # type: ignore[no-any-return]


# --- Another ttl --------------------------------------------------------------------------------------


@pytest.mark.parametrize("declare", [value, entries])
def test_state_without_a_ttl_begins_one_where_it_is_restored(declare: Callable[..., State]) -> None:
    job = Job(declare())
    job.visit(0, 1, 2)
    job.harness.advance(5_000)
    job = job.with_state(declare(ttl=1_000))
    assert job.visit(5_999, 1) == [1]
    assert job.visit(6_000, 2, 1) == [None, 2]


def test_a_ttl_that_is_gone_leaves_what_had_not_expired_for_good() -> None:
    job = Job(value(ttl=1_000))
    job.visit(0, 1)
    job.visit(500, 2)
    job.harness.advance(1_000)
    assert job.with_state(value()).visit(99_000, 1, 2) == [None, 1]


def test_a_longer_ttl_is_one_of_what_is_written_from_now_on() -> None:
    job = Job(value(ttl=1_000))
    job.visit(0, 1, 2)
    job = job.with_state(value(ttl=5_000))
    assert job.visit(999, 1) == [1]
    assert job.visit(1_000, 2, 1) == [None, 2]
    assert job.visit(5_998, 1) == [3]


def test_another_kind_of_time_begins_where_it_is_restored() -> None:
    job = Job(value(ttl=1_000))
    job.visit(0, 1, 2)
    job = job.with_state(value(ttl=1_000, ttl_time="processing"))
    job.clock.advance(999)
    assert job.visit(50_000, 1) == [1]
    job.clock.advance(1)
    assert job.visit(50_000, 2, 1) == [None, 2]


def test_without_any_event_time_nothing_can_begin() -> None:
    job = Job(value())
    job.visit(0, 1)
    with pytest.raises(UserFunctionError, match="state 'visits' was written without a ttl, and has one now"):
        job.with_state(value(ttl=1_000))
