"""Spark reads the state of a job that was killed, without its code, and finds what a model has."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import datasource

import onceflow
from onceflow.runtime.checkpoint.log_view import read_log
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


def check_changes(spark: Any, folder: str) -> None:
    """Spark has those that Python finds."""
    reading = spark.read.format("onceflow-state").options(operator="remembered", state="items")
    kept = [manifest.checkpoint_id for _, manifest in read_log(open_store(folder)).completed()]
    changes = reading.option("changes_from", kept[0]).load(folder)
    expected = onceflow.read_changes(folder, kept[0], kept[-1], "remembered", "items")
    assert expected.num_rows
    assert sorted(map(str, map(tuple, changes.collect()))) == sorted(
        str(tuple(row.values())) for row in expected.to_pylist()
    )


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
    check_changes(spark, folder)
    assert Pins(open_store(folder)).paths(), "a plan keeps its files until tasks must have read them"
    with pytest.raises(Exception, match=r"no state of 'total' \(did you mean 'totals'\?\)"):
        read(operator="total")


def test_a_filter_on_the_key_reads_one_part(spark: Any, tmp_path: Path) -> None:
    """A savepoint that was written from rows has 8 parts."""
    users = [f"user-{n}" for n in range(100)]
    rows = pa.table({"user": users, "value": [*range(100)]})
    onceflow.write_state(str(tmp_path / "known"), "op", "n", rows, keys=["user"])
    frame = (
        spark.read.format("onceflow-state").options(operator="op", state="n").load(str(tmp_path / "known"))
    )
    assert (frame.count(), frame.rdd.getNumPartitions()) == (100, 8)
    two = frame.where("user IN ('user-7', 'nobody') AND value < 100")
    assert [tuple(row) for row in two.collect()] == [("user-7", 7)]
    assert frame.where("user = 'user-7' AND value > 7").collect() == [], "Spark applies all of them"
    parts = frame.where("user = 'user-7'").rdd.getNumPartitions()
    assert parts == (1 if hasattr(datasource, "EqualTo") else 8), "PySpark 4.0 pushes nothing down"
    every = spark.read.format("onceflow-state").option("all_rows", "true").load(str(tmp_path / "known"))
    assert every.where("operator = 'op' AND key LIKE '%user-7\"%'").select("value").collect() == [
        ('{"value": 7}',)
    ]
    others = every.where("state = 'm'")
    assert others.collect() == []
    assert others.rdd.getNumPartitions() == (1 if hasattr(datasource, "EqualTo") else 8), "Spark makes one"


def test_spark_writes_windows_and_reduces_back(spark: Any, tmp_path: Path) -> None:
    base = str(Path(__file__).parents[1] / "unit" / "changed_programs" / "golden_savepoint_5")
    onceflow.register(spark)
    for uid, state in (("tumbling", "windows"), ("sliding", "panes"), ("reduce", "reduced")):
        rows = spark.read.format("onceflow-state").options(operator=uid, state=state).load(base)
        target = rows.where("user != 'user-023'").write.format("onceflow-state").mode("append")
        options = {"operator": uid, "state": state, "key_columns": "user", "base": base}
        target.options(**options).save(str(tmp_path / uid))
        with onceflow.read_state(base) as was, onceflow.read_state(tmp_path / uid) as now:
            expected = [row for row in was.table(uid).read().to_pylist() if row["user"] != "user-023"]
            found = now.table(uid).read().to_pylist()
            assert sorted(map(repr, found)) == sorted(map(repr, expected))
