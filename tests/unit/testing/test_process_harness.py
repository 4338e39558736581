"""A KeyedProcess alone."""

from __future__ import annotations

import pytest

from onceflow import Ctx, KeyedProcess, ListState, Timer
from onceflow.runtime.errors import UsageError
from onceflow.testing import harness
from tests.unit.testing.jobs import Purchase, Seen, Silence, Visits


def buy(user: str, ts: int) -> Purchase:
    return Purchase(user, "buy", 1, ts)


def test_records_state_and_timers() -> None:
    visits = harness(Visits(), key="user")
    visits.element(buy("ann", 0), at=0).element(buy("bob", 1_000), at="1 s").element(
        buy("ann", 5_000), at="5 s"
    )
    assert visits.out == [Seen("ann", 1), Seen("bob", 1), Seen("ann", 2)]
    assert {row["key"]["user"]: row["state"]["visits"] for row in visits.state()} == {
        "ann": 2,
        "bob": 1,
    }
    assert visits.advance("12 s").side("silent") == [Silence("bob", 11_000)]
    visits.restart(parallelism=2)
    assert visits.advance("15 s").side("silent") == [Silence("bob", 11_000), Silence("ann", 15_000)]
    visits.element(buy("ann", 16_000), at="16 s")
    assert visits.out[-1] == Seen("ann", 3)


def test_a_key_that_has_forgotten_everything_is_no_state() -> None:
    class Once(KeyedProcess[str, Purchase, Purchase]):
        seen = ListState("seen", int)

        def process(self, purchase: Purchase, ctx: Ctx) -> None:
            self.seen.add(purchase.ts)
            ctx.timers.event_time(purchase.ts + 10)
            ctx.timers.processing_time(ctx.processing_time + 60_000)

        def on_timer(self, fired: Timer, ctx: Ctx) -> None:
            self.seen.clear()

    once = harness(Once(), key="user").element(buy("ann", 0))
    assert [row["state"]["seen"] for row in once.state()] == [[0]]
    assert len(once.advance(10).state()) == 1, "a timer is left"
    assert once.advance_clock("1 min").state() == []


def test_processing_time() -> None:
    visits = harness(Visits(), key="user").element(buy("ann", 0))
    assert visits.advance_clock("59 s").side("silent") == []
    assert visits.advance_clock("1 s").side("silent") == [Silence("ann", -1)]


def test_what_is_not_there_is_said() -> None:
    with pytest.raises(UsageError, match="no side output 'loud': there are \\['silent'\\]"):
        harness(Visits(), key="user").side("loud")

    class Untyped(KeyedProcess):  # type: ignore[type-arg]
        def process(self, record, ctx):  # type: ignore[no-untyped-def]
            return []

    with pytest.raises(UsageError, match="Untyped does not say which records it takes"):
        harness(Untyped(), key="user")
