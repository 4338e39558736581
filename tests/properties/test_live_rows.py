"""What an operator that runs answers is what dictionaries have, and asking changes nothing."""

from __future__ import annotations

from collections import defaultdict
from contextlib import ExitStack
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from onceflow.runtime.operators.operator import PeekedOperator
from onceflow.runtime.operators.processing.process import ProcessOperator
from onceflow.runtime.state.asked_keys import AskedKeys
from onceflow.runtime.state.hashing import hash_keys
from onceflow.runtime.state.heap.heap_table import HeapTable
from onceflow.runtime.state.overflow import UNLIMITED, StateBackend
from onceflow.runtime.state.rocks import rocks_units
from onceflow.runtime.state.rocks.rocks_overflow import RocksOverflow
from onceflow.runtime.state_tables.live import by_key, live_shape, rows_of, slots_of
from onceflow.runtime.testing.harness import OperatorHarness
from onceflow.runtime.testing.mutation import Mutant, mutated
from onceflow.runtime.testing.tight_state import INCREMENTAL, tight_rocksdb
from onceflow.runtime.types.columns_of_records import batch_from_records
from onceflow.runtime.types.record_types import arrow_schema
from tests.properties.test_keyed_process import Model, OfKey, Op, Program, Seen, create, moves

GROUPS = 8
USERS = ["a", "b", "c", "ü", "", "never"]
KEYS = pa.RecordBatch.from_pylist(
    [{"user": user, "shard": shard} for user in USERS for shard in (1, 0)],
    pa.schema([("user", pa.string()), ("shard", pa.int64())]),
)
STATES = ("value", "entries", "items", "timers")
MANY: Program = [
    [Op(user, shard, kind, n, 10) for n, user in enumerate(USERS[:5]) for shard in (0, 1) for kind in kinds]
    for kinds in (["add", "put"], ["append", "timer"], ["add"])
]
"""Each key has something of everything; more keys than have room in memory."""


@settings(max_examples=60, deadline=None)
@given(st.lists(moves, max_size=12))
@example([*MANY, 40, ("restore", 3), *MANY])
def test_answers_are_what_dictionaries_have(program: Program) -> None:
    check(program, UNLIMITED)


@settings(max_examples=20, deadline=None)
@given(st.lists(moves, max_size=12))
@example([*MANY, 40, ("restore", 3), *MANY])
def test_answers_are_so_between_snapshots_that_build_on_each_other(program: Program) -> None:
    check(program, INCREMENTAL)


@settings(max_examples=12, deadline=None)
@given(st.lists(moves, max_size=12))
@example([*MANY, 40, ("restore", 3), *MANY])
def test_answers_are_so_of_keys_on_disk(program: Program) -> None:
    with tight_rocksdb() as state:
        check(program, state)


def check(program: Program, state: StateBackend) -> None:
    """Ask for all keys after each move, and run a second one that is never asked."""
    model, seen = Model(), list[list[Seen]]([[], []])
    both = [OperatorHarness(create, ["user", "shard"], 2, GROUPS, state=state) for _ in range(2)]
    for move in program:
        if isinstance(move, int):
            if move < model.watermark:  # watermarks never go back
                continue
            model.advance(move)
            for harness in both:
                harness.advance(move)
        elif isinstance(move, list):
            for op in move:
                model.process(op)
            for harness in both:
                harness.push(batch_from_records(move, arrow_schema(Op)), [op.ts for op in move])
        else:
            for n, harness in enumerate(both):
                states, emitted = harness.snapshot(), harness.out.emitted
                harness.close()
                both[n] = OperatorHarness(
                    create, ["user", "shard"], move[1], GROUPS, states=states, state=state
                )
                both[n].out.emitted += emitted
        for name in STATES:
            assert answered(both[0], name) == expected(model, name), (move, name)
    for n, harness in enumerate(both):
        harness.advance(200)
        seen[n] = [Seen(**row) for row in harness.rows()]
        harness.close()
    model.advance(200)
    assert grouped(seen[0]) == grouped(seen[1])
    assert grouped(seen[0]) == {key: of_key for key, of_key in model.seen.items() if of_key}


def answered(harness: OperatorHarness, name: str) -> list[list[dict[str, Any]]]:
    """For each of KEYS the rows of this state."""
    tables = []
    for slot, places in slots_of(hash_keys(KEYS, KEYS.schema.names), GROUPS, len(harness.subtasks)).items():
        operator, keys = harness.subtasks[slot], KEYS.take(pa.array(places))
        assert isinstance(operator, ProcessOperator)
        assert isinstance(operator, PeekedOperator)
        shape = live_shape({"remember": operator._config.description}, "remember", name)
        before = len(operator._memory.table)
        tables.append(rows_of(shape, operator.peek(AskedKeys(keys))))
        assert len(operator._memory.table) == before, "nothing comes back"
    rows = by_key(tables, KEYS)
    return [sorted(({**row} for row in of_key), key=str) for of_key in rows]


def expected(model: Model, name: str) -> list[list[dict[str, Any]]]:
    found = []
    for key in KEYS.to_pylist():
        kept = model.keys.get((key["user"], key["shard"]), OfKey())
        rows: list[dict[str, Any]] = []
        if name == "value" and kept.value is not None:
            rows = [{"value": kept.value}]
        elif name == "entries":
            rows = [{"map_key": k, "value": v} for k, v in kept.entries.items()]
        elif name == "items":
            rows = [{"position": n, "value": item} for n, item in enumerate(kept.items)]
        elif name == "timers":
            rows = [{"time": time, "kind": "event"} for time in kept.timers]
        found.append(sorted(({**key, **row} for row in rows), key=str))
    return found


def grouped(seen: list[Seen]) -> dict[tuple[str, int], list[Seen]]:
    found: dict[tuple[str, int], list[Seen]] = defaultdict(list)
    for one in seen:
        found[one.user, one.shard].append(one)
    return dict(found)


def _first_row(self: HeapTable, asked: AskedKeys, max_parallelism: int) -> Any:
    return self.freeze_rows(self.live_rows(), max_parallelism).piece(0, 1)


def _brought_back(self: RocksOverflow, asked: AskedKeys, max_parallelism: int) -> Any:
    self.find_or_add(asked.batch, asked.hashes)
    return self._table.peek(asked, max_parallelism)


@pytest.mark.parametrize(
    ("mutant", "is_on_disk"),
    [
        (Mutant("another key answers", [(HeapTable, "peek", _first_row)]), False),
        (Mutant("keys on disk are not found", [(rocks_units, "looked_up", lambda *_: ([], None))]), True),
        (Mutant("a question makes room for its keys", [(RocksOverflow, "_peek", _brought_back)]), True),
    ],
    ids=lambda it: getattr(it, "title", None),
)
def test_mutant_is_killed(mutant: Mutant, is_on_disk: bool) -> None:
    program: Program = [*MANY, 40, ("restore", 3), *MANY]
    with ExitStack() as stack:
        state = stack.enter_context(tight_rocksdb()) if is_on_disk else UNLIMITED
        check(program, state)
        stack.enter_context(mutated(mutant))
        with pytest.raises(AssertionError):
            check(program, state)
