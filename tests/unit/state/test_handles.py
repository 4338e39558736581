"""ValueState, MapState, ListState and timers: what they take, refuse, and give back."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from onceflow.runtime.errors import UsageError, UserFunctionError
from onceflow.runtime.state.declared_state import State
from onceflow.runtime.state.handles import ListState, MapState, ValueState
from onceflow.runtime.state.row_values import Cursor
from onceflow.runtime.state.table import LiveRows
from onceflow.runtime.state.timers import KeyTimers


@dataclass
class Point:
    x: int
    label: str


def bound(state: Any, rows: int = 3, at: int = 1) -> Any:
    """The state at the second of three keys."""
    cursor = Cursor()
    made = state.bind(cursor)
    made.of_rows.grow(rows)
    cursor.row = at
    return made


def through_arrow(state: State) -> Any:
    """The state as it comes back from a checkpoint."""
    rows = np.arange(3)
    column = state.of_rows.freeze(LiveRows(3))(rows)
    back = bound(state)
    back.of_rows.load(rows, column)
    return back


@pytest.mark.parametrize(
    ("python_type", "value", "kept"),
    [
        (int, np.int64(5), 5),
        (float, 3, 3.0),
        (float, np.float32(0.5), 0.5),
        (str, "x", "x"),
        (bool, True, True),
        (bytes, b"\xff", b"\xff"),
        (dt.date, dt.date(2026, 1, 2), dt.date(2026, 1, 2)),
        (dt.datetime, dt.datetime(2026, 1, 2, tzinfo=dt.UTC), dt.datetime(2026, 1, 2, tzinfo=dt.UTC)),
        (list[int], [1, 2], [1, 2]),
        (dict[str, int], {"a": 1}, {"a": 1}),
        (Point, Point(1, "a"), Point(1, "a")),
        (list[Point], [Point(1, "a")], [Point(1, "a")]),
    ],
)
def test_a_value_survives(python_type: Any, value: Any, kept: Any) -> None:
    state = bound(ValueState("s", python_type))
    assert state.get() is None
    state.set(value)
    assert state.get() == kept
    assert through_arrow(state).get() == kept
    state.of_rows.cursor.row = 0
    assert state.get() is None


REFUSED: list[tuple[Any, Callable[[Any], Any], str]] = [
    (ValueState("s", int), lambda s: s.set("5"), "state 's' is declared int but is set to '5'"),
    (ValueState("s", int), lambda s: s.set(1.5), "state 's' is declared int but is set to 1.5"),
    (ValueState("s", int), lambda s: s.set(True), "state 's' is declared int but is set to True"),
    (ValueState("s", int), lambda s: s.set(1 << 63), "state 's': 9223372036854775808 does not fit 64 bits"),
    (ValueState("s", int), lambda s: s.set(None), r"state 's' is set to None: clear\(\) forgets a value"),
    (ValueState("s", float), lambda s: s.set("1"), "state 's' is declared float"),
    (ValueState("s", str), lambda s: s.set(b"x"), "state 's' is declared str but is set to b'x'"),
    (ValueState("s", dt.date), lambda s: s.set(dt.datetime(2026, 1, 1)), "state 's' is declared date"),
    (ValueState("s", list[int]), lambda s: s.set(None), "is set to None"),
    (MapState("m", str, int), lambda m: m.put(1, 1), "state 'm' is declared str but is set to 1"),
    (MapState("m", str, int), lambda m: m.put("a", "b"), "state 'm' is declared int but is set to 'b'"),
    (ListState("l", int), lambda s: s.add("x"), "state 'l' is declared int but is set to 'x'"),
]


@pytest.mark.parametrize(("state", "use", "sentence"), REFUSED)
def test_another_type_is_refused_at_once(state: Any, use: Callable[[Any], Any], sentence: str) -> None:
    with pytest.raises((TypeError, OverflowError), match=sentence):
        use(bound(state))


@pytest.mark.parametrize(
    ("state", "value"),
    [(ValueState("s", list[int]), ["x"]), (ValueState("s", Point), Point("x", "a"))],  # type: ignore[arg-type]
)
def test_a_wrong_value_inside_is_named_at_the_checkpoint(state: Any, value: Any) -> None:
    handle = bound(state)
    handle.set(value)
    with pytest.raises(
        UserFunctionError, match=r"state 's' is declared .*found when the checkpoint was taken"
    ):
        handle.of_rows.freeze(LiveRows(3))(np.arange(3))


@pytest.mark.parametrize(
    "use",
    [
        lambda: ValueState("s", int).get(),
        lambda: ValueState("s", int).set(1),
        lambda: MapState("s", str, int).put("a", 1),
    ],
)
def test_outside_of_a_job_there_is_no_state(use: Callable[[], Any]) -> None:
    with pytest.raises(UsageError, match=r"state 's' is there only inside process\(\) and on_timer\(\)"):
        use()


def test_a_map() -> None:
    seen = bound(MapState("m", str, Point))
    assert seen.get("a") is None
    assert seen.get("a", 3) == 3
    assert seen.is_empty()
    assert not len(seen)
    assert seen, "a handle is always true"
    seen.put("a", Point(1, "x"))
    seen.put_all({"b": Point(2, "y"), "c": Point(3, "z")})
    for key in seen.keys():  # noqa: SIM118 - a copy, while entries go
        if key != "a":
            seen.remove(key)
    assert "a" in seen
    assert seen.contains("a")
    assert not seen.contains("b")
    assert list(seen.values()) == [Point(1, "x")]
    back = through_arrow(seen)
    assert dict(back.items()) == {"a": Point(1, "x")}
    seen.remove("a")
    assert seen.of_rows.values[1] is None, "an empty map costs nothing"
    assert through_arrow(seen).is_empty()


def test_a_list() -> None:
    recent = bound(ListState("l", int))
    assert recent.get() == []
    recent.add(1)
    recent.add(2)
    recent.get().append(3)
    assert recent.get() == [1, 2]
    assert through_arrow(recent).get() == [1, 2]
    recent.update([9])
    assert recent.get() == [9]
    recent.update([])
    assert recent.of_rows.values[1] is None
    recent.add(1)
    recent.clear()
    assert recent.get() == []


def test_timers_are_kept_once_for_each_key_and_time() -> None:
    timers = KeyTimers()
    timers.grow(2)
    for row, time in [(0, 30), (1, 10), (0, 10), (0, 10), (1, 40), (0, 20)]:
        timers.add(row, time)
    timers.delete(0, 20)
    timers.delete(1, 77)
    due = [(time, row) for time, row in timers.pop_due(30, 10) if timers.is_alive(time, row)]
    assert due == [(10, 0), (10, 1), (30, 0)]
    assert timers.is_empty(0)
    assert not timers.is_empty(1)
    assert timers.freeze(LiveRows(2))(np.arange(2)).to_pylist() == [[], [40]]


def test_timers_follow_their_keys_when_rows_are_renumbered() -> None:
    timers = KeyTimers()
    timers.grow(3)
    timers.add(0, 5)
    timers.add(2, 7)
    timers.keep(np.array([2]))
    assert [t for t in timers.pop_due(10, 10) if timers.is_alive(*t)] == [(7, 0)]


def test_a_name_that_a_list_has_and_a_state_has_not_is_told_with_those_that_it_has() -> None:
    with pytest.raises(AttributeError, match="a ListState has no 'append': it has add, clear, get, update"):
        _ = ListState("clicks", int).append  # type: ignore[attr-defined]
