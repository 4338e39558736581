"""Sliding windows by key, in RocksDB and with increments, against a naive list: as test_windows, and with
snapshots and records between two pieces of firing, and restores on another backend."""

from contextlib import ExitStack
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from onceflow.runtime.errors import Retryable
from onceflow.runtime.kernels.ops import PLAIN, ops_here, using
from onceflow.runtime.operators.assigners.sliding import Sliding
from onceflow.runtime.operators.windows import keyed_pane_operator
from onceflow.runtime.operators.windows.keyed_pane_operator import KeyedPaneOperator
from onceflow.runtime.operators.windows.pane_operator import FIRED, PaneOperator
from onceflow.runtime.operators.windows.window import WindowAggregate
from onceflow.runtime.state.overflow import UNLIMITED, StateBackend
from onceflow.runtime.state.rocks.rocks_groups import RocksGroups
from onceflow.runtime.state.rocks.rocks_units import RocksUnits
from onceflow.runtime.state.rocks.went import Went
from onceflow.runtime.testing.mutation import Mutant, mutated
from onceflow.runtime.testing.tight_state import INCREMENTAL, tight_rocksdb
from tests.properties.test_windows import (
    AGGREGATES,
    ROW,
    SCHEMA,
    SLIDING,
    NaiveWindows,
    Run,
    as_batch,
    sort_key,
)

MAX_MS = (1 << 63) - 1
BACKENDS = ("disk", "increments", "memory")
STEP = st.one_of(
    st.tuples(st.just("rows"), st.lists(ROW, max_size=12)),
    st.tuples(st.just("rows"), st.lists(ROW, max_size=12)),
    st.tuples(st.just("watermark"), st.integers(-50, 70)),
    st.tuples(st.just("watermark of one"), st.integers(-50, 70)),
    st.tuples(st.just("begin"), st.tuples(st.integers(-50, 70), st.integers(0, 3))),
    st.tuples(st.just("checkpoint"), st.none()),
    st.tuples(
        st.just("restore"),
        st.tuples(st.sampled_from([1, 2, 3]), st.sampled_from(ops_here()), st.sampled_from(BACKENDS)),
    ),
)
WINDOW = Sliding(20, 5)


def row(time: int, user: str, amount: int = 1) -> tuple[Any, ...]:
    return (time, user, 1, amount, 0.5, None)


ON_DISK = [
    ("rows", [row(n, user, n) for n, user in enumerate("abäab" * 3)]),
    ("checkpoint", None),
    ("rows", [row(3, "a", 7), row(30, "b"), row(31, "ä")]),
    ("watermark", 12),
    ("checkpoint", None),
    ("rows", [row(13, "a", 100)]),
    ("rows", [row(20, "b", 9), row(14, "ä", 11)]),
    ("begin", (26, 1)),
    ("rows", [row(22, "a", 5), row(24, "b", 6)]),
    ("restore", (1, PLAIN, "disk")),
    ("rows", [row(25, "a", 50), row(23, "", 8)]),
    ("watermark", 40),
    ("checkpoint", None),
    ("rows", [row(41, "b", 3), row(39, "ä", 4)]),
    ("restore", (3, PLAIN, "increments")),
]
"""Keys have several panes when they go, change, fire and come back."""
BETWEEN = [
    ("rows", [row(2, "a"), row(3, "b"), row(4, "ä"), row(5, "")]),
    ("begin", (60, 2)),
    ("restore", (2, PLAIN, "memory")),
    ("rows", [row(45, user, 5) for user in ("a", "b", "ä", "", "\U0001f600")]),
    ("begin", (60, 1)),
    ("restore", (1, PLAIN, "disk")),
    ("rows", [row(50, user, 6) for user in ("a", "b", "ä", "")]),
]

GONE = [
    ("rows", [row(2, "a"), row(3, "b"), row(4, "ä")]),
    ("watermark", 30),
    ("rows", [row(40, "b")]),
    ("checkpoint", None),
    ("rows", [row(41, "a"), row(42, "ä")]),
    ("restore", (1, PLAIN, "disk")),
]


class PieceRun(Run):
    """The real operator, which may be in the middle of firing."""

    def __init__(
        self, configured: Any, stack: ExitStack, states: dict[str, StateBackend], first: str
    ) -> None:
        super().__init__(configured, stack, states[first])
        self.states = states

    def fire_all(self) -> None:
        while self.harness.fire(1 << 10):
            pass

    def checkpoint(self) -> None:
        """It is made and restored in place, so that the next one builds on it or not."""
        self.harness.snapshot()

    def move(self, parallelism: int, chosen: Any, backend: str) -> None:
        self.state = self.states[backend]
        self.restore(parallelism, chosen)


def check(steps: list[Any], window: Sliding, first: str = "disk") -> None:
    with using(PLAIN), tight_rocksdb(1) as disk, ExitStack() as stack:
        states = {"disk": disk, "increments": INCREMENTAL, "memory": UNLIMITED}
        configured = WindowAggregate("w", ("user", "region"), window, AGGREGATES, SCHEMA, late=True)
        run, naive = PieceRun(configured, stack, states, first), NaiveWindows(window)
        is_between = False
        for kind, value in [*steps, ("watermark", MAX_MS)]:
            if is_between and (kind.startswith("watermark") or kind == "begin"):
                run.fire_all()
                is_between = False
            if kind == "rows":
                if run.state is UNLIMITED:  # where what is behind the watermark may count in what is to fire
                    value = [row for row in value if naive.ends(row)[0] - 1 > run.fired_ms(row)]
                naive.push(value, run.fired_ms)
                run.harness.push(as_batch(value), [row[0] for row in value])
            elif kind == "restore":
                run.collect()
                run.move(*value)
                is_between = False
            elif kind == "checkpoint":
                run.checkpoint()
            elif kind == "begin":
                reached = max(value[0], *run.watermarks, -(1 << 63))
                run.watermarks = [reached] * len(run.watermarks)
                naive.fire(run.fired_ms)
                run.harness.begin(reached)
                for _ in range(value[1]):
                    run.harness.fire(1)
                is_between = True
            else:
                one = [value % len(run.watermarks)]
                for subtask in range(len(run.watermarks)) if kind == "watermark" else one:
                    run.watermarks[subtask] = max(run.watermarks[subtask], value)
                    run.harness.advance(run.watermarks[subtask], subtask)
                naive.fire(run.fired_ms)
            run.collect()
        got = [tuple(found.values()) for found in run.results]
        assert sorted(got, key=sort_key) == sorted(naive.results, key=sort_key)
        late = [tuple(found.values()) for found in run.late]
        assert sorted(late, key=sort_key) == sorted((found[1:] for found in naive.late), key=sort_key)
        assert run.late_rows == len(naive.late)


@settings(max_examples=60, deadline=None)
@example(steps=ON_DISK, window=WINDOW, first="disk")
@example(steps=ON_DISK, window=WINDOW, first="increments")
@example(steps=BETWEEN, window=WINDOW, first="disk")
@example(steps=BETWEEN, window=WINDOW, first="increments")
@given(steps=st.lists(STEP, max_size=14), window=SLIDING, first=st.sampled_from(["disk", "increments"]))
def test_sliding_windows_by_key_agree_with_a_naive_list(steps: Any, window: Any, first: Any) -> None:
    check(steps, window, first)


def test_a_window_that_fired_on_disk_does_not_fire_again_in_memory() -> None:
    """Its panes are gone there, and what comes behind the watermark brings it none."""
    check_not_again()


def check_not_again() -> None:
    configured = WindowAggregate("w", ("user", "region"), WINDOW, AGGREGATES, SCHEMA)
    with using(PLAIN), tight_rocksdb(1) as disk, ExitStack() as stack:
        states: dict[str, StateBackend] = {"disk": disk, "memory": UNLIMITED}
        run = PieceRun(configured, stack, states, "disk")
        run.harness.push(as_batch([row(2, "a"), row(3, "b"), row(4, "ä")]), [2, 3, 4])
        run.watermarks = [29] * 2
        run.harness.begin(29)
        while not [found for found in run.harness.rows() if found["window_end"] == 20]:
            run.harness.fire(1)
        run.harness.fire(1)
        run.collect()
        run.move(1, PLAIN, "memory")
        users = [found["user"] for found in run.results if found["window_end"] == 20]
        run.harness.push(as_batch([row(19, user) for user in users]), [19] * len(users))
        run.harness.finish()
        run.collect()
        sent = [(found["user"], found["window_end"]) for found in run.results]
        assert len(set(sent)) == len(sent)


def not_woken(self: Any, kind: int, rows: Any, times: Any) -> None:
    """A key that goes to disk does not say when it has to come back."""


def first_row(content: bytes) -> Any:
    """One pane of a key comes back."""
    return REAL_SPLIT(content)[:1]


def undeleted(self: RocksGroups, identities: Any) -> None:
    """What RocksDB has of a key whose panes are gone stays there."""
    if (kept := self._table.kept_keys) is not None:
        self._keep(kept)


def unnoted(self: RocksUnits, units: Any, counts: Any) -> None:
    """A key that goes with a change which no snapshot has is not remembered."""
    went, self._went = self._went, Went()
    REAL_WRITE(self, units, counts)
    self._went = went


def unfired(piece: Any) -> Any:
    """It is not restored for which keys a window has fired."""
    names = [name for name in piece.schema.names if name != FIRED]
    return REAL_WITH_FIRED(piece.select(names))


def nobody_fires(self: KeyedPaneOperator, keys: Any) -> None:
    """Records that come between two pieces count in what is still to fire."""


def new_keys_unnoted(self: PaneOperator, first: int) -> None:
    """Keys without panes count as such for which nothing fired."""


REAL_WITH_FIRED = keyed_pane_operator._with_fired
REAL_SPLIT, REAL_WRITE = RocksGroups.split, RocksUnits._write
MUTANTS = (
    Mutant("a wake is forgotten", [(RocksUnits, "_put_wakes", not_woken)]),
    Mutant("panes that are gone come back", [(RocksGroups, "_renumbered", undeleted)]),
    Mutant("an increment misses what went to disk", [(RocksUnits, "_write", unnoted)]),
    Mutant("what has fired is not noted", [(keyed_pane_operator, "_with_fired", unfired)]),
    Mutant("records count in what is to fire", [(KeyedPaneOperator, "_fire_all", nobody_fires)]),
)


def check_all() -> None:
    for steps in (ON_DISK, BETWEEN, GONE):
        check(steps, WINDOW)


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.title for mutant in MUTANTS])
def test_mutant_is_killed(mutant: Mutant) -> None:
    with mutated(mutant), pytest.raises(AssertionError):
        check_all()


def test_a_key_that_comes_back_without_one_of_its_panes_is_found() -> None:
    mutant = Mutant("one pane", [(RocksGroups, "split", staticmethod(first_row))])
    with mutated(mutant), pytest.raises(Retryable, match="RocksDB gave 1 rows of 3"):
        check_all()


def test_a_window_that_fires_again_in_memory_is_found() -> None:
    mutant = Mutant("new keys are not noted", [(PaneOperator, "_note_new_keys", new_keys_unnoted)])
    with mutated(mutant), pytest.raises(AssertionError):
        check_not_again()
