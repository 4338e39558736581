"""Upkeep of a table: after so many commits, never twice at once, and waited for at the end."""

from __future__ import annotations

import threading

from onceflow.connectors.tables.upkeep import Upkeep

DEADLINE_S = 60


def test_it_is_done_after_so_many_commits() -> None:
    done = threading.Semaphore(0)
    upkeep = Upkeep(3, lambda: done.release())
    for _ in range(2):
        for _ in range(2):
            upkeep.on_commit()
        assert not done.acquire(blocking=False)
        upkeep.on_commit()
        assert done.acquire(timeout=DEADLINE_S)
        upkeep.close()


def test_no_checkpoint_waits_for_it_and_what_is_under_way_is_waited_for_at_the_end() -> None:
    begun, may_end = threading.Semaphore(0), threading.Event()
    ends: list[int] = []

    def work() -> None:
        begun.release()
        assert may_end.wait(DEADLINE_S)
        ends.append(1)

    upkeep = Upkeep(1, work)
    upkeep.on_commit()
    assert begun.acquire(timeout=DEADLINE_S)
    upkeep.on_commit()
    assert not begun.acquire(blocking=False), "one at a time"
    may_end.set()
    upkeep.close()
    assert ends == [1]
    upkeep.on_commit()
    upkeep.close()
    assert ends == [1, 1], "what was left out is done with the next commit"


def test_without_a_number_there_is_none() -> None:
    upkeep = Upkeep(None, lambda: None)
    upkeep.on_commit()
    upkeep.close()
    assert "table-upkeep" not in {thread.name for thread in threading.enumerate()}
