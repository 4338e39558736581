"""Spark reads the state of a job that was killed, without its code, and finds what a model has."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from onceflow.runtime.checkpoint.savepoints.pins import Pins
from onceflow.runtime.checkpoint.store_url import open_store
from tests.integration.jobs.remembered import USERS, Purchase, purchase

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
JOB = Path(__file__).parent / "jobs" / "remembered.py"
CHECKPOINTS = 8
"""Each user has bought three times by then, and more."""


def numbers_of(position: dict[str, int]) -> range:
    """The records that a split of the generator has given."""
    return range(position["number"], position["number"] + position["of"] * position["made"], position["of"])


@pytest.mark.parametrize("backend", ["heap", "rocksdb"])
def test_spark_reads_the_state_of_a_killed_job(
    backend: str, spark: Any, start_job: Any, tmp_path: Path
) -> None:
    folder = str(tmp_path / "checkpoints")
    job = start_job(Path(folder), program=JOB, options=["--state-backend", backend])
    job.wait_event("checkpoint_completed", lambda e: e["checkpoint_id"] >= CHECKPOINTS)
    job.kill_group()
    assert job.wait(60) != 0

    def read(**options: str) -> list[Any]:
        rows = spark.read.format("onceflow-state").options(**options).load(folder)
        return [tuple(row) for row in rows.collect()]

    listed = {(row[0], row[1]): row[2] for row in read()}
    assert listed == {
        ("bought", "offsets"): "offsets",
        ("remembered", "best"): "value",
        ("remembered", "items"): "map",
        ("remembered", "recent"): "list",
        ("remembered", "timers"): "timers",
        ("totals", "windows"): "window aggregate",
    }
    taken = [n for row in read(operator="bought") for n in numbers_of(json.loads(row[4]))]
    purchases = [purchase(n) for n in sorted(taken)]
    by_user: dict[str, list[Purchase]] = {}
    for each in purchases:
        by_user.setdefault(each.user, []).append(each)
    best = {user: max(each.price for each in mine) for user, mine in by_user.items()}
    assert {row[0]: row[1].price for row in read(operator="remembered", state="best")} == best
    items: dict[tuple[str, str], int] = {}
    for each in purchases:
        items[each.user, each.item] = items.get((each.user, each.item), 0) + 1
    assert {row[:2]: row[2] for row in read(operator="remembered", state="items")} == items
    assert len(by_user) == USERS
    timers = read(operator="remembered", state="timers")
    assert sorted(timers) == sorted((user, 86_400_000, "event") for user in by_user)
    assert {row[0]: tuple(row[2]) for row in read(operator="totals")} == {
        user: (len(mine), sum(each.price for each in mine)) for user, mine in by_user.items()
    }
    [one] = read(operator="totals", key="user-1")
    assert (one[0], one[2][0]) == ("user-1", len(by_user["user-1"]))
    two = read(operator="remembered", state="recent", keys='["user-1", "user-4"]')
    assert {(row[0], row[1]) for row in two} == {(user, n) for user in ("user-1", "user-4") for n in range(3)}
    assert Pins(open_store(folder)).paths(), "a plan keeps its files until tasks must have read them"
    with pytest.raises(Exception, match=r"no state of 'total' \(did you mean 'totals'\?\)"):
        read(operator="total")
