"""Work off the slot's thread: commits keep their order, outcomes and errors come back on the slot's own."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Iterator

import pytest

from onceflow.runtime.background import Threads

DEADLINE_S = 60.0


class Slot:
    """The thread that delivers."""

    def __init__(self) -> None:
        self.said = threading.Semaphore(0)
        self.background = Threads(2, on_done=self.said.release)

    def deliver_one(self) -> None:
        assert self.said.acquire(timeout=DEADLINE_S)
        assert self.background.deliver()


@pytest.fixture
def slot() -> Iterator[Slot]:
    opened = Slot()
    yield opened
    opened.background.close()


def test_the_outcome_comes_back_on_the_delivering_thread(slot: Slot) -> None:
    seen: list[tuple[int, int]] = []
    slot.background.write(threading.get_ident, lambda there: seen.append((there, threading.get_ident())))
    slot.deliver_one()
    ((there, here),) = seen
    assert here == threading.get_ident()
    assert there != here
    assert not slot.background.deliver()


def test_what_a_job_held_is_let_go_of_when_it_is_done(slot: Slot) -> None:
    """Goal: a snapshot does not lie in memory until the next one."""

    class Snapshot:
        def write(self) -> None:
            pass

    snapshot = Snapshot()
    held = weakref.ref(snapshot)
    slot.background.write(snapshot.write, lambda _: None)
    del snapshot
    slot.deliver_one()
    assert held() is None


def test_nothing_comes_back_before_deliver(slot: Slot) -> None:
    seen: list[int] = []
    slot.background.write(lambda: 1, seen.append)
    assert slot.said.acquire(timeout=DEADLINE_S)
    assert seen == []
    slot.background.deliver()
    assert seen == [1]


def test_commits_keep_their_order_one_at_a_time(slot: Slot) -> None:
    running: list[int] = []
    order: list[int] = []

    def commit(number: int) -> Callable[[], int]:
        def job() -> int:
            running.append(number)
            assert len(running) == 1, "two commits at once"
            running.remove(number)
            return number

        return job

    for number in range(50):
        slot.background.commit(commit(number), order.append)
    for _ in range(50):
        assert slot.said.acquire(timeout=DEADLINE_S)
    slot.background.deliver()
    assert order == list(range(50))


def test_a_slow_commit_holds_up_no_write(slot: Slot) -> None:
    go_on = threading.Event()
    seen: list[str] = []
    slot.background.commit(lambda: go_on.wait(DEADLINE_S), lambda _: seen.append("commit"))
    slot.background.write(lambda: None, lambda _: seen.append("write"))
    slot.deliver_one()
    assert seen == ["write"]
    go_on.set()
    slot.deliver_one()
    assert seen == ["write", "commit"]


def test_what_a_job_raises_is_raised_where_it_is_delivered(slot: Slot) -> None:
    def fail() -> None:
        raise OSError("disk full")

    slot.background.write(fail, lambda _: pytest.fail("no outcome"))
    assert slot.said.acquire(timeout=DEADLINE_S)
    with pytest.raises(OSError, match="disk full"):
        slot.background.deliver()


def test_close_waits_for_no_commit_that_waits_for_a_broker() -> None:
    opened, never = Slot(), threading.Event()
    opened.background.commit(lambda: never.wait(DEADLINE_S), lambda _: None)
    opened.background.commit(lambda: pytest.fail("cancelled, not run"), lambda _: None)
    started = time.monotonic()
    opened.background.close()
    assert time.monotonic() - started < DEADLINE_S / 2
    never.set()
