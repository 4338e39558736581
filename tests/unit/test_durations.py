"""Durations and rates as people write them."""

from __future__ import annotations

import pytest

from onceflow.runtime.durations import duration_ms, rate_per_s
from onceflow.runtime.errors import OptionError


def test_durations() -> None:
    assert [duration_ms(v, "x") for v in ("2 s", "500ms", "1.5 min", 7)] == [2_000, 500, 90_000, 7]
    words = ("10 seconds", "1 second", "2 milliseconds", "1.5 minutes", "1 hour", "2 days")
    assert [duration_ms(v, "x") for v in words] == [10_000, 1_000, 2, 90_000, 3_600_000, 172_800_000]
    with pytest.raises(OptionError, match="window='2 parsecs' is not a duration"):
        duration_ms("2 parsecs", "window")


def test_rates() -> None:
    given = ("100/s", "6000 / min", "1.5/s", 20, 0.5, "3600/h")
    assert [rate_per_s(each, "rate_limit") for each in given] == [100, 100, 1.5, 20, 0.5, 1]
    for wrong in ("100", "0/s", "x/s", 0, -1, True, float("inf"), "5/ms"):
        with pytest.raises(OptionError, match=r"rate_limit=.* is no rate"):
            rate_per_s(wrong, "rate_limit")
