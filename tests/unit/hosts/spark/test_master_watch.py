"""Masters that do not answer are named, from what the JVM logs; one that nobody can have meant at once."""

from __future__ import annotations

import socket

import pytest

from onceflow.runtime.clock import ManualClock
from onceflow.runtime.errors import Fatal, Unavailable
from onceflow.runtime.hosts.spark.executor_watch import ExecutorWatch
from onceflow.runtime.hosts.spark.master_watch import MasterWatch

LINE = "16:00:00 WARN StandaloneAppClient$ClientEndpoint: Failed to connect to master {}\n"


def resolve(host: str) -> None:
    """Knows only `known`; of `away` no name server answers."""
    if host != "known":
        number = socket.EAI_AGAIN if host == "away" else socket.EAI_NONAME
        raise socket.gaierror(number, "Name or service not known")


def watch(*silent: str) -> MasterWatch:
    masters = MasterWatch(resolve)
    for address in silent:
        masters.hear(LINE.format(address))
    return masters


def test_a_master_that_does_not_answer_is_waited_for_and_named() -> None:
    masters = watch("known:7077", "known:7077")
    masters.check("spark://known:7077")
    assert masters.waiting == " (no answer from the master at known:7077)"
    error = masters.not_started("spark://known:7077", "Spark was stopped")
    assert isinstance(error, Unavailable)
    assert str(error) == (
        "Spark did not start on spark://known:7077: no answer from the master at known:7077; correct "
        "--master, or start the cluster"
    )


def test_a_name_that_is_not_known_ends_the_wait_at_once() -> None:
    with pytest.raises(Unavailable, match=r"master at nohost:7077 \(Name or service not known\); correct"):
        watch("nohost:7077").check("spark://nohost:7077")


@pytest.mark.parametrize("silent", [("nohost:1",), ("nohost:1", "known:2"), ("away:2",)])
def test_while_one_of_them_may_answer_the_wait_goes_on(silent: tuple[str, ...]) -> None:
    watch(*silent).check("spark://nohost:1,known:2" if len(silent) > 1 else "spark://nohost:1,away:2")


def test_where_all_masters_answered_the_cause_is_sparks_own() -> None:
    masters = watch()
    masters.hear("16:00:00 INFO StandaloneAppClient$ClientEndpoint: Executor updated: app-1/0 is now RUNNING")
    assert masters.waiting == ""
    error = masters.not_started("local[2]", "no memory")
    assert isinstance(error, Fatal)
    assert str(error) == "Spark did not start on local[2]: no memory"


def test_the_watch_of_executors_hears_for_it() -> None:
    executors = ExecutorWatch(ManualClock())
    executors.hear(LINE.format("127.0.0.1:9"))
    assert "127.0.0.1:9" in executors.masters.waiting
