"""Rules for every subtask: the same on all of them after restarts at other parallelisms and under crashes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from onceflow import (
    BroadcastCtx,
    BroadcastProcess,
    BroadcastState,
    Ctx,
    InitializationContext,
    Job,
    KeyedBroadcastProcess,
    ListState,
    OperatorListState,
    SnapshotContext,
    Timer,
    ValueState,
    WatermarkStrategy,
)
from onceflow.runtime.api.stream import Stream
from onceflow.runtime.errors import GraphError, OnceflowError
from onceflow.runtime.graph.plan import describe
from onceflow.runtime.operators.processing import broadcast
from onceflow.runtime.operators.processing.broadcast import BroadcastOperator
from onceflow.runtime.testing.mutation import Mutant, mutated
from onceflow.testing import SimulationError, run, simulate


@dataclass(frozen=True)
class Reading:
    sensor: str
    celsius: int
    ts: int


@dataclass(frozen=True)
class Limit:
    name: str
    celsius: int
    ts: int


@dataclass(frozen=True)
class Hot:
    sensor: str
    limits: list[str]
    at: int


class Watch(KeyedBroadcastProcess[str, Reading, Limit, Hot]):
    limits = BroadcastState("limits", str, Limit)
    seen = ValueState("seen", int)

    def process(self, record: Reading, ctx: Ctx) -> Iterator[Hot]:
        self.seen.set((self.seen.get() or 0) + 1)
        over = sorted(name for name, limit in self.limits.items() if record.celsius > limit.celsius)
        if over:
            yield Hot(record.sensor, over, record.ts)

    def process_broadcast(self, rule: Limit, ctx: BroadcastCtx) -> None:
        if rule.celsius < 0:
            self.limits.remove(rule.name)
        else:
            self.limits.put(rule.name, rule)


TIMES = WatermarkStrategy.bounded_out_of_orderness("1 h", event_time="ts")


def streams(rules_have_time: bool = False) -> tuple[Job, Stream[Reading], Stream[Limit]]:
    job = Job("watch")
    readings = job.from_elements(Reading("a", 1, 0), watermarks=TIMES, uid="readings")
    times = TIMES if rules_have_time else None
    return job, readings, job.from_elements(Limit("l", 1, 0), watermarks=times, uid="limits")


def watching(process: Any) -> Job:
    job, readings, limits = streams()
    hot = readings.key_by("sensor").connect(limits.broadcast()).process(process, uid="watch")
    hot.print(uid="hot")
    return job


def rooms(celsius: int, ts: int = 0) -> list[Reading]:
    return [Reading(f"room {n}", celsius, ts) for n in range(12)]


def test_all_subtasks_have_the_rules_whatever_the_parallelism() -> None:
    def limits_at(ts: int) -> list[list[str]]:
        return [row["limits"] for row in job.hot if row["at"] == ts]

    with run(watching(Watch()), parallelism=3, limits=[Limit("warm", 20, 0), Limit("hot", 60, 0)]) as job:
        job.push(readings=rooms(30))
        assert limits_at(0) == [["warm"]] * 12
        for parallelism in (1, 4, 2):
            job.restart(parallelism=parallelism).push(readings=rooms(70, parallelism))
            assert limits_at(parallelism) == [["hot", "warm"]] * 12
        job.push(limits=[Limit("warm", -1, 9)]).crash(parallelism=3).push(readings=rooms(61, 9))
        assert limits_at(9) == [["hot"]] * 12
        assert {row["state"]["seen"] for row in job.state("watch")} == {5}


def test_rules_without_event_time_hold_no_watermark_back() -> None:
    job, readings, limits = streams()
    hot = readings.key_by("sensor").connect(limits.broadcast()).process(AtTheEnd(), uid="watch")
    hot.print(uid="hot")
    with run(job, readings=[Reading("a", 5, 0)], limits=[Limit("l", 3, 0)]) as test:
        assert test.advance_to("3 h").hot == [{"sensor": "a", "limits": ["l"], "at": 7_200_000}]


class AtTheEnd(KeyedBroadcastProcess[str, Reading, Limit, Hot]):
    """Judges by what all rules say when event time has come two hours further: in no order of the streams."""

    limits = BroadcastState("limits", str, int)
    kept = ListState("kept", int)

    def process(self, record: Reading, ctx: Ctx) -> None:
        self.kept.add(record.celsius)
        ctx.timers.event_time(7_200_000)

    def process_broadcast(self, rule: Limit, ctx: BroadcastCtx) -> None:
        self.limits.put(rule.name, max(rule.celsius, self.limits.get(rule.name, 0)))

    def on_timer(self, fired: Timer, ctx: Ctx) -> Iterator[Hot]:
        highest = max(self.kept.get())
        yield Hot(ctx.key, sorted(n for n, limit in self.limits.items() if highest > limit), fired.time)


def judged() -> tuple[Job, dict[str, Any]]:
    job, readings, limits = streams(rules_have_time=True)
    hot = readings.key_by("sensor").connect(limits.broadcast()).process(AtTheEnd(), uid="watch")
    hot.print(uid="hot")
    rules = {f"r{s}": [Limit(f"l{n % 4}", 5 * n, n) for n in range(s, 9, 2)] for s in range(2)}
    return job, {"readings": [Reading(f"s{n % 6}", 3 * n, n) for n in range(16)], "limits": rules}


@pytest.mark.parametrize("barriers", ["aligned", "unaligned"])
def test_rules_are_the_same_on_all_subtasks_under_crashes_and_rescales(barriers: str) -> None:
    job, inputs = judged()
    report = simulate(job, inputs, seeds=12, barriers=barriers)
    assert report.rows == {"hot": 6}
    assert sum(report.crashes.values()) > 4


@pytest.mark.parametrize(
    "mutant",
    [
        Mutant("rules are not in the snapshot", [(broadcast, "decoded", lambda state, text: {})]),
        Mutant(
            "rules are restored on the first subtask only",
            [(BroadcastOperator, "restore", lambda self, states: self._main.restore(states))],
        ),
    ],
    ids=lambda mutant: mutant.title,
)
def test_rules_that_get_lost_are_found(mutant: Mutant) -> None:
    job, inputs = judged()
    with mutated(mutant), pytest.raises(SimulationError):
        simulate(job, inputs, seeds=60)


class Differs(Watch):
    """Comes to another state on each subtask."""

    def process_broadcast(self, rule: Limit, ctx: BroadcastCtx) -> None:
        self.limits.put(rule.name, Limit(rule.name, id(self) % 100_003, 0))


class WritesWhereItReads(Watch):
    def process(self, record: Reading, ctx: Ctx) -> Iterator[Hot]:
        self.limits.clear()
        return iter(())


class ReadsAKey(Watch):
    def process_broadcast(self, rule: Limit, ctx: BroadcastCtx) -> None:
        self.seen.get()


def test_what_would_make_subtasks_differ_is_refused() -> None:
    with (
        pytest.raises(OnceflowError, match=r"'limits' is written outside of process_broadcast\(\)"),
        run(watching(WritesWhereItReads()), limits=[Limit("l", 3, 0)], readings=[Reading("a", 5, 0)]),
    ):
        pass
    with (
        pytest.raises(OnceflowError, match=r"process_broadcast\(\) has no key"),
        run(watching(ReadsAKey()), readings=[Reading("a", 5, 0)]) as job,
    ):
        job.push(limits=[Limit("l", 3, 0)])
    with (
        pytest.raises(OnceflowError, match="subtasks have come to different broadcast states 'limits'"),
        run(watching(Differs()), parallelism=3, readings=rooms(1), limits=[Limit("l", 3, 0)]) as job,
    ):
        job.restart(parallelism=1)


def test_the_plan_says_what_goes_to_every_subtask() -> None:
    exchanges = describe(watching(Watch()).build())["exchanges"]
    assert {(e["input"], e["partitioning"]) for e in exchanges} == {
        ("left", "by key"),
        ("right", "broadcast"),
    }


def test_what_can_not_be_connected_is_refused_in_a_sentence() -> None:
    _, readings, limits = streams()
    _, _, others = streams()
    by_sensor = readings.key_by("sensor")
    with pytest.raises(GraphError, match="'limits' belongs to another job"):
        by_sensor.connect(others.broadcast())
    with pytest.raises(GraphError, match="expected an object of a class derived from KeyedBroadcastProcess"):
        by_sensor.connect(limits.broadcast()).process(print)  # type: ignore[arg-type]
    with pytest.raises(GraphError, match="Watch takes Limit, but the stream has no column 'name'"):
        by_sensor.connect(readings.broadcast()).process(Watch())  # type: ignore[arg-type]


class Sieve(BroadcastProcess[Reading, Limit, Hot]):
    """Without a key. Counts what it has seen in a list of its subtask."""

    limits = BroadcastState("limits", str, int)
    seen = OperatorListState("seen", int)

    def __init__(self) -> None:
        self.count = 0

    def initialize_state(self, ctx: InitializationContext) -> None:
        self.count = sum(self.seen.get())

    def snapshot_state(self, ctx: SnapshotContext) -> None:
        self.seen.update([self.count])

    def process(self, record: Reading, ctx: Ctx) -> Iterator[Hot]:
        self.count += 1
        yield Hot(record.sensor, [name for name, _ in sorted(self.limits.items())], record.ts)

    def process_broadcast(self, rule: Limit, ctx: BroadcastCtx) -> None:
        self.limits.put(rule.name, rule.celsius)


def sieved(process: Any) -> Job:
    job, readings, limits = streams()
    readings.connect(limits.broadcast()).process(process, uid="sieve").print(uid="hot")
    return job


def test_a_stream_without_a_key_has_the_rules_on_all_subtasks() -> None:
    assert {(e["input"], e["partitioning"]) for e in describe(sieved(Sieve()).build())["exchanges"]} == {
        ("left", "forward"),
        ("right", "broadcast"),
    }, "rows of the stream itself stay where they are"
    with run(sieved(Sieve()), parallelism=3, limits=[Limit("warm", 20, 0), Limit("hot", 60, 0)]) as job:
        for ts, parallelism in enumerate((3, 1, 4, 2)):
            if ts:
                job.restart(parallelism=parallelism)
            job.push(readings=rooms(30, ts))
            assert [row["limits"] for row in job.hot if row["at"] == ts] == [["hot", "warm"]] * 12
        job.push(limits=[Limit("boiling", 99, 0)]).crash(parallelism=3).push(readings=rooms(30, 9))
        assert [row["limits"] for row in job.hot if row["at"] == 9] == [["boiling", "hot", "warm"]] * 12


class Keeps(BroadcastProcess[Reading, Limit, Hot]):
    """Judges at the end of the input, when all rules are there."""

    limits = BroadcastState("limits", str, int)
    kept = OperatorListState("kept", int)

    def __init__(self) -> None:
        self.waiting: list[int] = []

    def initialize_state(self, ctx: InitializationContext) -> None:
        self.waiting = list(self.kept.get())

    def snapshot_state(self, ctx: SnapshotContext) -> None:
        self.kept.update(self.waiting)

    def process(self, record: Reading, ctx: Ctx) -> None:
        self.waiting.append(record.celsius)

    def process_broadcast(self, rule: Limit, ctx: BroadcastCtx) -> None:
        self.limits.put(rule.name, max(rule.celsius, self.limits.get(rule.name, 0)))

    def on_watermark(self, watermark: int, ctx: Ctx) -> Iterator[Hot]:
        if ctx.is_end_of_input:
            for celsius in self.waiting:
                yield Hot(str(celsius), sorted(n for n, limit in self.limits.items() if celsius > limit), 0)
            self.waiting = []


def kept() -> tuple[Job, dict[str, Any]]:
    job, readings, limits = streams(rules_have_time=True)
    readings.connect(limits.broadcast()).process(Keeps(), uid="keeps").print(uid="hot")
    rules = {f"r{s}": [Limit(f"l{n % 4}", 5 * n, n) for n in range(s, 9, 2)] for s in range(2)}
    return job, {"readings": [Reading(f"s{n % 6}", 3 * n, n) for n in range(16)], "limits": rules}


def test_rules_without_a_key_survive_crashes_and_rescales() -> None:
    job, inputs = kept()
    report = simulate(job, inputs, seeds=12)
    assert report.rows == {"hot": 16}
    assert sum(report.crashes.values()) > 4


def test_rules_without_a_key_that_get_lost_are_found() -> None:
    job, inputs = kept()
    lost = Mutant("rules are not in the snapshot", [(broadcast, "decoded", lambda state, text: {})])
    with mutated(lost), pytest.raises(SimulationError):
        simulate(job, inputs, seeds=60)


class HasAKey(Sieve):
    seen_by_key = ValueState("seen_by_key", int)


def test_what_a_stream_without_a_key_can_not_have_is_refused() -> None:
    _, readings, limits = streams()
    with pytest.raises(GraphError, match="expected an object of a class derived from BroadcastProcess"):
        readings.connect(limits.broadcast()).process(Watch())  # type: ignore[arg-type]
    with pytest.raises(GraphError, match="'seen_by_key' of HasAKey belongs to a key"):
        readings.connect(limits.broadcast()).process(HasAKey())
