"""What has been looked up lately."""

from __future__ import annotations

from onceflow.runtime.clock import ManualClock
from onceflow.runtime.operators.async_calls.lookup_cache import LookupCache


def test_the_keys_that_were_asked_for_longest_ago_are_forgotten_first() -> None:
    cache = LookupCache(2, 100, ManualClock().monotonic_ms)
    cache.put("a", [1])
    cache.put("b", [])
    assert cache.get("a") == [1]
    cache.put("c", [3])
    assert (cache.get("b"), cache.get("a"), cache.get("c"), len(cache)) == (None, [1], [3], 2)


def test_rows_are_kept_for_a_while_from_when_they_came() -> None:
    clock = ManualClock()
    cache = LookupCache(2, 100, clock.monotonic_ms)
    cache.put("a", [1])
    clock.advance(99)
    assert cache.get("a") == [1]
    clock.advance(1)
    assert cache.get("a") is None
    assert len(cache) == 0
