"""How busy a slot is, between two heartbeats; and its process's memory."""

from __future__ import annotations

from onceflow.runtime.slot.usage import SlotUsage


def test_the_time_that_was_not_idle_is_busy_since_the_last_measurement() -> None:
    usage = SlotUsage(1_000.0, lambda: 7)
    usage.idle_ms += 250
    usage.measure(2_000.0)
    assert (usage.busy_ratio, usage.rss_bytes) == (0.75, 7)
    usage.measure(3_000.0)
    assert usage.busy_ratio == 1.0
    usage.idle_ms += 1_000
    usage.measure(4_000.0)
    assert usage.busy_ratio == 0.0


def test_a_wait_that_began_before_the_measurement_gives_no_ratio_outside_of_0_and_1() -> None:
    usage = SlotUsage(0.0, lambda: 0)
    usage.idle_ms += 1_200
    usage.measure(1_000.0)
    assert usage.busy_ratio == 0.0
    usage.measure(1_000.0)
    assert usage.busy_ratio == 0.0


def test_the_memory_is_that_of_this_process() -> None:
    usage = SlotUsage(0.0)
    usage.measure(1.0)
    assert 10 * 2**20 < usage.rss_bytes < 100 * 2**30
