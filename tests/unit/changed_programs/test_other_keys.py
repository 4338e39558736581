"""Timers and times of expiry go with the keys; what can't be said of them is refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

import onceflow
from onceflow import KeyedProcess, ListState, ValueState
from onceflow.runtime.errors import UsageError
from onceflow.runtime.state_tables import merged_keys
from onceflow.runtime.testing.mutation import Mutant, mutated

LAST = [("zed", 1, 1.5, 2_600)]
ROWS = (("ann", 5, 1.5, 1_000), ("abe", 7, 2.5, 2_000), ("bob", 1, 2.5, 2_500))


@dataclass(frozen=True)
class Shown:
    user: str


def remembering(expires: str = "value") -> Any:
    class Remember(KeyedProcess[str, Any, Shown]):
        last = ValueState("last", int, ttl="1 h" if expires == "value" else None)
        every = ListState("every", int, ttl="1 h" if expires == "list" else None)

        def process(self, row: Any, ctx: Any) -> Any:
            self.last.set(row.amount)
            self.every.add(row.amount)
            ctx.timers.event_time(row.ts + 60_000)
            ctx.timers.event_time(90_000)
            yield Shown(row.user)

    return lambda s: {"out": s.key_by("user").process(Remember(), uid="op")}


def initial(user: str) -> str:
    return user[0]


def newest(key: str, states: list[dict[str, Any]]) -> dict[str, Any]:
    return {"last": states[-1]["last"], "every": [n for state in states for n in state["every"]]}


def rekeyed_tables(folder: Any, target: str) -> dict[str, list[dict[str, Any]]]:
    """Without the last record's key: the checkpoint with it may have output that is not committed."""
    onceflow.rekey_state(target, str(folder.path), "op", initial, newest)
    with onceflow.read_state(target) as state:
        tables = {name: state.table("op", name).read().to_pylist() for name in ("last", "every", "timers")}
    return {
        name: sorted((row for row in rows if row["user"] != "z"), key=repr) for name, rows in tables.items()
    }


def test_timers_of_all_and_the_longest_life(folder: Any) -> None:
    folder.run(remembering(), *ROWS, slots=2, later=[LAST])
    tables = rekeyed_tables(folder, f"{folder.path}-new")
    hour = 3_600_000
    assert tables["last"] == [
        {"user": "a", "value": 5, "expires": hour + 2_000},  # abe comes before ann
        {"user": "b", "value": 1, "expires": hour + 2_500},
    ]
    times = {(row["user"], row["time"]) for row in tables["timers"]}
    assert times == {("a", 61_000), ("a", 62_000), ("a", 90_000), ("b", 62_500), ("b", 90_000)}
    assert len(tables["timers"]) == 5
    assert [row["value"] for row in tables["every"]] == [7, 5, 1]


@pytest.mark.parametrize(
    "mutant",
    [
        Mutant(
            "timers of the first only", [(merged_keys, "_timers", lambda times, groups, met, first: first)]
        ),
        Mutant("the first one's life", [(merged_keys, "_EXPIRIES", ())]),
    ],
    ids=lambda mutant: mutant.title,
)
def test_what_gets_lost_is_found(folder: Any, mutant: Mutant) -> None:
    with pytest.raises(AssertionError), mutated(mutant):
        test_timers_of_all_and_the_longest_life(folder)


def test_elements_that_expire_can_not_be_merged(folder: Any) -> None:
    folder.run(remembering("list"), *ROWS, later=[LAST])
    with pytest.raises(UsageError, match="what is in state 'every' expires one by one"):
        rekeyed_tables(folder, f"{folder.path}-new")


def test_where_nothing_is_kept_there_is_the_new_key(folder: Any) -> None:
    folder.run(remembering())
    target = f"{folder.path}-new"
    onceflow.rekey_state(target, str(folder.path), "op", number)
    with onceflow.read_state(target) as state:
        assert state.table("op", "last").schema.names == ["user", "value", "expires"]
        assert str(state.table("op", "last").schema.field("user").type) == "int64"


def number(user: str) -> int:
    return len(user)


def test_windows_have_no_other_keys(folder: Any) -> None:
    folder.run(lambda s: {"out": s.key_by("user").reduce(lambda a, b: b, uid="op")}, *ROWS)
    with pytest.raises(UsageError, match="operator 'op' is a reduce, and only a process function's state"):
        rekeyed_tables(folder, f"{folder.path}-new")
