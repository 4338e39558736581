"""Which calls are made again: tenacity decides, by the time of our clock."""

from __future__ import annotations

import tenacity
from pyspark import cloudpickle

from onceflow.runtime.errors import GraphError, Retryable
from onceflow.runtime.operators.async_calls.retry_policy import RetryPolicy


def test_so_many_more_attempts_with_growing_pauses() -> None:
    policy = RetryPolicy.times(3)
    pauses = [policy.pause_ms(attempt, 0, 10, None, OSError("away")) for attempt in (1, 2, 3, 4)]
    assert pauses[3] is None
    for pause_ms, least_ms in zip(pauses[:3], (100, 200, 400), strict=True):
        assert pause_ms is not None
        assert least_ms <= pause_ms <= least_ms + 100
    assert policy.pause_ms(1, 0, 10, "a result", None) is None


def test_what_onceflow_raises_fails_each_time_but_a_retryable() -> None:
    policy = RetryPolicy.times(3)
    assert policy.pause_ms(1, 0, 10, None, GraphError("no")) is None
    assert policy.pause_ms(1, 0, 10, None, Retryable("away")) is not None


def test_a_retrying_of_tenacitys_decides_by_result_and_time_and_travels() -> None:
    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_result(lambda found: found is None),
        wait=tenacity.wait_fixed(0.5),
        stop=tenacity.stop_after_delay(2),
    )
    policy = cloudpickle.loads(cloudpickle.dumps(RetryPolicy.of(retrying)))
    assert policy.pause_ms(1, 1_000, 1_100, None, None) == 500
    assert policy.pause_ms(1, 1_000, 3_100, None, None) is None
    assert policy.pause_ms(1, 1_000, 1_100, "found", None) is None
