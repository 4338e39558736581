"""Tokens of several channels become one."""

from __future__ import annotations

from onceflow.runtime.exchange.loop_tokens import TokenMerge
from onceflow.runtime.records import LoopToken


def test_a_token_goes_on_when_it_has_come_on_all_channels_and_is_quiet_if_all_are() -> None:
    merge = TokenMerge(3)
    for channel, is_quiet in ((2, True), (0, False)):
        merge.take(channel, LoopToken("loop", 1, is_quiet))
        assert merge.merged() is None
    merge.take(1, LoopToken("loop", 1, True))
    assert merge.merged() == LoopToken("loop", 1, False)
    assert merge.merged() is None
    for channel in range(3):
        merge.take(channel, LoopToken("loop", 2, True))
    assert merge.merged() == LoopToken("loop", 2, True)


def test_channels_from_outside_of_the_loop_count_when_they_have_ended() -> None:
    merge = TokenMerge(2)
    merge.take(0, LoopToken("loop", 1, True))
    assert merge.merged() is None
    merge.end(1)
    assert merge.merged() == LoopToken("loop", 1, True)
    merge.take(0, LoopToken("loop", 2, True))
    assert merge.merged() == LoopToken("loop", 2, True)


def test_loops_are_told_apart() -> None:
    merge = TokenMerge(2)
    merge.take(0, LoopToken("a", 1, True))
    merge.take(1, LoopToken("b", 1, True))
    assert merge.merged() is None
    merge.take(1, LoopToken("a", 1, True))
    assert merge.merged() == LoopToken("a", 1, True)
