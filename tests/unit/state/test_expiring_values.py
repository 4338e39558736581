"""What a TTL means for one key: until when something is there, what renews it, and what a snapshot has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from onceflow.runtime.errors import GraphError, OptionError, UsageError
from onceflow.runtime.records import WATERMARK_MAX_MS
from onceflow.runtime.state.expiring_values import ExpiringValues
from onceflow.runtime.state.handles import ListState, MapState, ValueState
from onceflow.runtime.state.row_values import Cursor
from onceflow.runtime.state.table import LiveRows


class Held:
    """A state of one key, and the time."""

    def __init__(self, declared: Any) -> None:
        self.cursor = Cursor()
        self.state = declared.bind(self.cursor)
        self.state.of_rows.grow(1)
        self.cursor.row = 0

    @property
    def of_rows(self) -> ExpiringValues:
        assert isinstance(self.state.of_rows, ExpiringValues)
        return self.state.of_rows

    def at(self, event_ms: int) -> Any:
        self.cursor.event_ms = event_ms
        return self.state

    def values_and_times(self) -> tuple[Any, Any]:
        rows = np.arange(1)
        values = self.of_rows.freeze(LiveRows(1))(rows).to_pylist()
        return values[0], self.of_rows.freeze_times()(rows).to_pylist()[0]


Write = Callable[[Any], None]
KINDS: list[tuple[Any, Write, Any]] = [
    (ValueState, lambda s: s.set(5), 5),
    (MapState, lambda s: s.put("a", 5), {"a": 5}),
    (ListState, lambda s: s.add(5), [5]),
]


def declared(kind: Any, **options: Any) -> Any:
    return kind("s", *([str, int] if kind is MapState else [int]), ttl=100, **options)


def shown(state: Any) -> Any:
    return (dict(state.items()) if isinstance(state, MapState) else state.get()) or None


@pytest.mark.parametrize(("kind", "write", "value"), KINDS)
def test_it_is_there_until_its_time_and_an_older_record_still_finds_it(
    kind: Any, write: Write, value: Any
) -> None:
    held = Held(declared(kind))
    write(held.at(1_000))
    assert [shown(held.at(t)) for t in (900, 1_099, 1_100, 1_099)] == [value, value, None, value]


@pytest.mark.parametrize(("kind", "write", "value"), KINDS)
def test_a_read_renews_it_if_it_is_to(kind: Any, write: Write, value: Any) -> None:
    held = Held(declared(kind, ttl_refresh="read"))
    write(held.at(1_000))
    assert [shown(held.at(t)) for t in (1_090, 1_180, 1_279, 1_500)] == [value, value, value, None]
    assert shown(held.at(1_380)) is None, "one that found nothing renews nothing"


def test_a_record_that_is_late_never_shortens_it() -> None:
    value, entries = Held(declared(ValueState)), Held(declared(MapState))
    for at in (1_000, 950):
        value.at(at).set(5)
        entries.at(at).put("a", 5)
    assert value.at(1_060).get() == 5
    assert "a" in entries.at(1_060)


def test_clear_forgets_the_time_too() -> None:
    value = Held(declared(ValueState))
    value.at(1_000).set(5)
    value.state.clear()
    value.at(900).set(6)
    assert value.at(999).get() == 6
    assert value.at(1_000).get() is None


def test_what_has_expired_counts_for_nothing() -> None:
    held = Held(declared(MapState))
    held.at(1_000).put("old", 1)
    held.at(1_050).put("new", 2)
    seen = held.at(1_100)
    assert (len(seen), "old" in seen, seen.contains("new"), seen.is_empty()) == (1, False, True, False)
    assert seen.get("old", 7) == 7
    seen.remove("new")
    assert seen.is_empty()
    held.at(1_120).put("old", 3)
    assert dict(held.at(1_219).items()) == {"old": 3}


def test_elements_expire_one_by_one_and_an_update_is_new() -> None:
    held = Held(declared(ListState))
    for at in (1_000, 1_050):
        held.at(at).add(at)
    assert held.at(1_120).get() == [1_050]
    held.at(1_120).update([1, 2])
    assert [held.at(t).get() for t in (1_219, 1_220)] == [[1, 2], []]
    held.state.update([])
    assert held.values_and_times() == (None, None)


@pytest.mark.parametrize(("kind", "write", "value"), KINDS)
def test_a_snapshot_leaves_out_what_has_expired(kind: Any, write: Write, value: Any) -> None:
    held = Held(declared(kind))
    write(held.at(1_000))
    held.cursor.passed_ms = 1_099
    found, times = held.values_and_times()
    assert found == ([{"key": "a", "value": 5}] if kind is MapState else value)
    assert times == (1_100 if kind is ValueState else [1_100])
    held.cursor.passed_ms = 1_100
    assert held.values_and_times() == (None, None)


@pytest.mark.parametrize(("kind", "write"), [(k, w) for k, w, _ in KINDS])
def test_a_snapshot_is_not_changed_by_what_comes_after(kind: Any, write: Write) -> None:
    held = Held(declared(kind, ttl_refresh="read"))
    write(held.at(1_000))
    before = held.values_and_times()
    rows = np.arange(1)
    values, times = held.of_rows.freeze(LiveRows(1)), held.of_rows.freeze_times()
    write(held.at(1_050))
    shown(held.at(1_060))
    if kind is MapState:
        held.state.put("b", 6)
        held.state.get("a")
        held.state.remove("a")
    assert (values(rows).to_pylist()[0], times(rows).to_pylist()[0]) == before


@pytest.mark.parametrize(("kind", "write", "value"), KINDS)
def test_what_a_failed_call_did_is_taken_back_with_its_time(kind: Any, write: Write, value: Any) -> None:
    held = Held(declared(kind))
    write(held.at(1_000))
    saved = held.of_rows.save(0)
    write(held.at(1_080))
    if kind is MapState:
        held.state.put("b", 6)
    held.of_rows.bring_back(0, saved)
    assert [shown(held.at(t)) for t in (1_099, 1_100)] == [value, None]


def test_at_the_end_of_event_time_all_has_expired() -> None:
    held = Held(declared(ValueState))
    held.at(WATERMARK_MAX_MS).set(5)
    assert held.state.get() is None


@pytest.mark.parametrize(("kind", "write"), [(k, w) for k, w, _ in KINDS])
def test_a_snapshot_after_the_end_holds_nothing(kind: Any, write: Write) -> None:
    held = Held(declared(kind))
    held.cursor.passed_ms = WATERMARK_MAX_MS
    assert held.values_and_times() == (None, None)
    write(held.at(1_000))
    assert held.values_and_times() == (None, None)


def test_by_the_clock_event_time_does_not_matter() -> None:
    held = Held(declared(ValueState, ttl_time="processing"))
    held.cursor.clock_ms = 10
    held.at(1_000).set(5)
    held.cursor.clock_ms = 109
    assert held.at(5_000).get() == 5
    held.cursor.clock_ms = 110
    assert held.at(1_000).get() is None


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"ttl": "soon"}, "state 's': ttl='soon' is not a duration"),
        ({"ttl": "0 s"}, "state 's': ttl='0 s': what expires at once is never there"),
        ({"ttl": "1 s", "ttl_refresh": "reads"}, "ttl_refresh='reads': use 'write' or 'read'"),
        ({"ttl": "1 s", "ttl_time": "clock"}, "ttl_time='clock': use 'event' or 'processing'"),
        (
            {"ttl_time": "processing"},
            "state 's': ttl_refresh and ttl_time say how a ttl counts: pass ttl= too",
        ),
    ],
)
def test_what_is_no_ttl_is_refused_by_name(options: Any, sentence: str) -> None:
    with pytest.raises((GraphError, OptionError), match=sentence):
        ValueState("s", int, **options)


def test_outside_of_a_job_there_is_no_state() -> None:
    with pytest.raises(UsageError, match=r"state 's' is there only inside process\(\) and on_timer\(\)"):
        "a" in declared(MapState)  # noqa: B015
