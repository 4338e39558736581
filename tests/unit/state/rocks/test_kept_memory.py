"""KeptMemory: the C library is asked now and then, and need not be glibc."""

from __future__ import annotations

import pytest

from onceflow.runtime.state.rocks import kept_memory
from onceflow.runtime.state.rocks.kept_memory import KeptMemory


def test_the_c_library_gives_back_every_fourth_time(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(kept_memory, "_TRIM", asked.append)
    kept = KeptMemory()
    counts = []
    for _ in range(9):
        kept.give_back()
        counts.append(len(asked))
    assert counts == [0, 0, 0, 1, 1, 1, 1, 2, 2]
    assert asked == [0, 0], "all that is free"


def test_another_c_library_keeps_what_it_keeps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_memory, "_TRIM", None)
    kept = KeptMemory()
    for _ in range(4):
        kept.give_back()
