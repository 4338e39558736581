"""A source with a rate limit is read no faster, whatever its reader brings."""

from __future__ import annotations

import pytest

from onceflow.runtime.slot.source_rate import SourceRate


def read(rate: SourceRate, seconds: int, brings: int, every_ms: int = 1) -> int:
    """How many records come in so many seconds from a reader that brings `brings` more than asked for."""
    total = 0
    for now_ms in range(0, seconds * 1_000, every_ms):
        if allowed := rate.allowed(now_ms):
            rate.took(allowed + brings)
            total += allowed + brings
    return total


@pytest.mark.parametrize("brings", [0, 30])
@pytest.mark.parametrize(("per_s", "parallelism"), [(100, 1), (100, 4), (5, 2), (20_000, 1)])
def test_over_some_time_it_is_the_limit(per_s: float, parallelism: int, brings: int) -> None:
    seconds = 20
    total = sum(read(SourceRate(per_s, parallelism), seconds, brings) for _ in range(parallelism))
    burst = parallelism * (1 + brings) + per_s / 10
    assert per_s * seconds * 0.9 - parallelism <= total <= per_s * seconds + burst


def test_what_was_not_read_is_not_made_up_for() -> None:
    rate = SourceRate(100, 1)
    assert rate.allowed(0) == 1
    assert rate.allowed(60_000) == 10
