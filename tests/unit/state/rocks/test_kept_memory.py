"""KeptMemory: the C library is asked now and then, and need not be glibc."""

from __future__ import annotations

from onceflow.runtime.state.rocks.kept_memory import KeptMemory


def test_the_c_library_gives_back_every_fourth_time() -> None:
    asked: list[int] = []
    kept = KeptMemory(asked.append)
    counts = []
    for _ in range(9):
        kept.give_back()
        counts.append(len(asked))
    assert counts == [0, 0, 0, 1, 1, 1, 1, 2, 2]
    assert asked == [0, 0], "all that is free"


def test_another_c_library_keeps_what_it_keeps() -> None:
    kept = KeptMemory(None)
    for _ in range(4):
        kept.give_back()
