"""Executors of a standalone cluster that never come, as the driver's JVM logs of them."""

from __future__ import annotations

import pytest

from onceflow.runtime.clock import ManualClock
from onceflow.runtime.hosts.spark.executor_watch import ENDED_MAX, REGISTERS_WITHIN_MS, ExecutorWatch

LINE = "09:44:28 INFO StandaloneAppClient$ClientEndpoint: Executor "


class Cluster:
    """What a Master says to the driver of its executors."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.watch = ExecutorWatch(self.clock)
        self._number = -1

    def start(self, host: str = "10.0.0.2") -> str:
        self._number += 1
        name = f"app-20261125094428-0004/{self._number}"
        self.watch.hear(f"{LINE}added: {name} on worker-2026-{host}-44227 ({host}:44227) with 2 core(s)")
        self.watch.hear(f"{LINE}updated: {name} is now RUNNING")
        return name

    def end(self, name: str, how: str = "EXITED (Command exited with code 1)") -> None:
        self.watch.hear(f"{LINE}updated: {name} is now {how}")


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def test_executors_that_end_in_a_row_are_trouble_and_the_last_one_is_named(
    cluster: Cluster,
) -> None:
    for number in range(ENDED_MAX + 1):
        assert cluster.watch.trouble() is None
        cluster.end(cluster.start(f"10.0.0.{number}"))
    told = cluster.watch.trouble()
    assert told == "3 have ended soon after their start, the last one on 10.0.0.2: Command exited with code 1"


def test_why_the_last_one_ended_is_known_in_the_next_attempt(cluster: Cluster) -> None:
    assert cluster.watch.told() == ""
    cluster.end(cluster.start("10.0.0.3"), "KILLED")
    assert cluster.watch.told() == "", "the cluster has ended that one"
    cluster.end(cluster.start("10.0.0.3"), "EXITED (Command exited with code 137)")
    cluster.watch.begin()
    ended = " (the last executor that ended was on 10.0.0.3: Command exited with code 137)"
    assert cluster.watch.told() == ended
    for _ in range(ENDED_MAX + 1):
        cluster.end(cluster.start())
    assert "of its executors 3 have ended" in cluster.watch.told()


def test_an_executor_that_runs_and_does_not_register_is_trouble_after_a_while(cluster: Cluster) -> None:
    cluster.start()
    cluster.clock.advance(REGISTERS_WITHIN_MS - 1)
    assert cluster.watch.trouble() is None
    cluster.clock.advance(1)
    assert cluster.watch.trouble() == "one runs on 10.0.0.2 since 150 s"


@pytest.mark.parametrize("how", ["KILLED", "LOST (worker lost)", "DECOMMISSIONED"])
def test_what_the_cluster_ends_is_no_trouble(cluster: Cluster, how: str) -> None:
    for _ in range(ENDED_MAX + 1):
        cluster.end(cluster.start(), how)
    cluster.clock.advance(REGISTERS_WITHIN_MS)
    assert cluster.watch.trouble() is None


def test_another_attempt_counts_anew(cluster: Cluster) -> None:
    for _ in range(ENDED_MAX + 1):
        cluster.end(cluster.start())
    cluster.start()
    cluster.clock.advance(REGISTERS_WITHIN_MS)
    cluster.watch.begin()
    assert cluster.watch.trouble() is None
    cluster.clock.advance(REGISTERS_WITHIN_MS)
    assert cluster.watch.trouble() is not None


def test_other_lines_say_nothing(cluster: Cluster) -> None:
    cluster.watch.hear(
        "09:44:27 INFO StandaloneAppClient$ClientEndpoint: Connecting to master spark://m:7077..."
    )
    cluster.end("app-of-before/1")
    assert cluster.watch.trouble() is None
