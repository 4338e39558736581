"""A KeyedBroadcastProcess against dictionaries: every subtask has all rules, each key its own state, whatever
is restored at whatever parallelism."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from onceflow.runtime.operators.processing import broadcast
from onceflow.runtime.operators.processing.broadcast import (
    BroadcastConfig,
    BroadcastCtx,
    KeyedBroadcastOperator,
    KeyedBroadcastProcess,
)
from onceflow.runtime.operators.processing.broadcast_state import BroadcastState
from onceflow.runtime.operators.processing.keyed_process import Ctx
from onceflow.runtime.operators.processing.process import ProcessConfig
from onceflow.runtime.records import WATERMARK_MIN_MS, Records
from onceflow.runtime.state.handles import ValueState
from onceflow.runtime.state.overflow import UNLIMITED, StateBackend
from onceflow.runtime.state.timers import Timer
from onceflow.runtime.testing.harness import OperatorHarness
from onceflow.runtime.testing.mutation import Mutant, mutated
from onceflow.runtime.testing.tight_state import INCREMENTAL, tight_rocksdb
from onceflow.runtime.types.columns_of_records import RecordWriter, batch_from_records
from onceflow.runtime.types.record_types import arrow_schema
from onceflow.runtime.types.records_of_columns import RecordReader


class Reading(NamedTuple):
    user: str
    value: int
    ts: int


class Rule(NamedTuple):
    name: str
    limit: int
    """Readings above it are told; below 0: the rule goes."""


class Told(NamedTuple):
    user: str
    what: str
    rules: list[str]
    readings: int


class Limit:
    """No record type, and equal to no other."""

    def __init__(self, above: int) -> None:
        self.above = above


@dataclass
class Chain:
    """Contains itself, so it has no columns."""

    above: int
    before: Chain | None = None


class Watch(KeyedBroadcastProcess[str, Reading, Rule, Told]):
    rules = BroadcastState("rules", str, int)
    limits = BroadcastState("limits", str, Limit, codec="pickle")
    chains = BroadcastState("chains", str, Chain, codec="msgspec")
    count = ValueState("count", int)

    def process(self, record: Reading, ctx: Ctx) -> Iterator[Told]:
        self.count.set(self.count.get(0) + 1)
        ctx.timers.event_time(record.ts + 10)
        passed = sorted(name for name, limit in self.rules.items() if record.value > limit)
        assert [*self.rules.items()] == [(name, limit.above) for name, limit in self.limits.items()]
        assert [*self.rules.items()] == [(name, chain.above) for name, chain in self.chains.items()]
        yield Told(ctx.key, f"reading {record.ts}", passed, self.count.get(0))

    def process_broadcast(self, rule: Rule, ctx: BroadcastCtx) -> None:
        if rule.limit < 0:
            self.rules.remove(rule.name)
            self.limits.remove(rule.name)
            self.chains.remove(rule.name)
        else:
            self.rules.put(rule.name, rule.limit)
            self.limits.put(rule.name, Limit(rule.limit))
            self.chains.put(rule.name, Chain(rule.limit, self.chains.get(rule.name)))

    def on_timer(self, fired: Timer, ctx: Ctx) -> Iterator[Told]:
        yield Told(
            ctx.key, f"timer {fired.time}", sorted(name for name, _ in self.rules.items()), self.count.get(0)
        )


READINGS = st.builds(
    Reading, st.sampled_from(["a", "b", "c", "ü", ""]), st.integers(0, 9), st.integers(0, 60)
)
RULES = st.builds(Rule, st.sampled_from(["x", "y", "z"]), st.integers(-3, 9))
MOVES = st.one_of(
    st.lists(READINGS, min_size=1, max_size=8),
    st.lists(RULES, min_size=1, max_size=4),
    st.integers(0, 70),
    st.tuples(st.just("restore"), st.integers(1, 4)),
)


def create() -> KeyedBroadcastOperator:
    writer, reader = RecordWriter(arrow_schema(Told)), RecordReader(Reading)
    main = ProcessConfig(
        "watch", Watch(), ("user",), arrow_schema(Reading), writer, reader, has_event_time=True
    )
    return KeyedBroadcastOperator(BroadcastConfig(main, RecordReader(Rule)), main.create())


class Model:
    def __init__(self) -> None:
        self.rules: dict[str, int] = {}
        self.count: dict[str, int] = defaultdict(int)
        self.timers: dict[str, set[int]] = defaultdict(set)
        self.told: dict[str, list[Told]] = defaultdict(list)

    def reading(self, row: Reading) -> None:
        self.count[row.user] += 1
        self.timers[row.user].add(row.ts + 10)
        passed = sorted(name for name, limit in self.rules.items() if row.value > limit)
        self.told[row.user].append(Told(row.user, f"reading {row.ts}", passed, self.count[row.user]))

    def rule(self, rule: Rule) -> None:
        self.rules.pop(rule.name, None)
        if rule.limit >= 0:
            self.rules[rule.name] = rule.limit

    def advance(self, time_ms: int) -> None:
        for user, times in self.timers.items():
            for time in sorted(time for time in times if time <= time_ms):
                times.remove(time)
                self.told[user].append(Told(user, f"timer {time}", sorted(self.rules), self.count[user]))


def check(program: list[Any], state: StateBackend) -> None:
    model, watermark = Model(), WATERMARK_MIN_MS
    told: dict[str, list[Told]] = defaultdict(list)
    harness = OperatorHarness(create, ["user"], max_parallelism=8, state=state)
    for move in [*program, 100]:
        if isinstance(move, int):
            watermark = max(watermark, move)
            harness.advance(watermark)
            model.advance(watermark)
        elif isinstance(move, tuple):
            harness = OperatorHarness(create, ["user"], move[1], 8, harness.snapshot(), state=state)
            harness.advance(watermark)
            model.advance(watermark)
        elif isinstance(move[0], Rule):
            rules = Records(batch_from_records(move, arrow_schema(Rule)), np.zeros(len(move), np.int64))
            for subtask in harness.subtasks:
                assert isinstance(subtask, KeyedBroadcastOperator)
                subtask.on_right_records(rules)
            for rule in move:
                model.rule(rule)
        else:
            harness.push(batch_from_records(move, arrow_schema(Reading)), [row.ts for row in move])
            for row in move:
                model.reading(row)
        for row in harness.rows():
            told[row["user"]].append(Told(**row))
        harness.out.emitted.clear()
    assert dict(told) == dict(model.told)


OFTEN: list[Any] = [
    [Rule("x", 3), Rule("y", 7)],
    [Reading("a", 5, 1), Reading("b", 9, 2), Reading("c", 0, 3)],
    ("restore", 4),
    [Rule("x", -1), Rule("z", 0)],
    [Reading("a", 5, 4), Reading("ü", 9, 5)],
    ("restore", 1),
    12,
    [Rule("y", 1)],
    ("restore", 3),
    [Reading("b", 2, 20)],
]


@settings(max_examples=60, deadline=None)
@example(OFTEN)
@given(st.lists(MOVES, max_size=14))
def test_every_subtask_has_all_rules_and_each_key_its_state(program: list[Any]) -> None:
    check(program, UNLIMITED)


@settings(max_examples=30, deadline=None)
@example(OFTEN)
@given(st.lists(MOVES, max_size=14))
def test_so_it_is_where_snapshots_build_on_each_other(program: list[Any]) -> None:
    check(program, INCREMENTAL)


@settings(max_examples=30, deadline=None)
@example(OFTEN)
@given(st.lists(MOVES, max_size=14))
def test_so_it_is_with_keys_in_rocksdb(program: list[Any]) -> None:
    with tight_rocksdb(rows_in_memory=1) as state:
        check(program, state)


def no_entries(state: BroadcastState[Any, Any]) -> str:
    """A copy in which the latest rule is missing."""
    entries = dict(list(state.items())[:-1])
    kept, state._entries = state._entries, entries
    try:
        return original_encoded(state)
    finally:
        state._entries = kept


original_encoded = broadcast.encoded


def test_a_snapshot_without_the_latest_rule_is_found() -> None:
    mutant = Mutant("the latest rule is not kept", [(broadcast, "encoded", no_entries)])
    with mutated(mutant), pytest.raises(AssertionError):
        check(OFTEN, UNLIMITED)
