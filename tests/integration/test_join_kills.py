"""Outer joins from Kafka to Kafka, their process killed again and again: of a join by time each pair, and
each row without a partner, is there once; the changes of a regular join make a table that is the join."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from onceflow.connectors.kafka.embedded import EmbeddedKafka
from tests.integration.job_process import JobProcess
from tests.integration.killed_runs import run_killed
from tests.integration.models_of_kinds import Events, Found, by_key, joined, temporal_join
from tests.integration.numbered_events import produced, table_of

pytestmark = pytest.mark.kafka
JOBS = Path(__file__).parent / "jobs"
KEYS, WITHIN_MS, EVER_MS = 200, 50, 1 << 40
MANY_KEYS, LONG_MS, LONG_TEXT = 10_000, 6_000, 4_000
"""There are so many keys that few of them change from one checkpoint to the next; the rows of so long a time
take more than the memory of three slots."""
SLOW = "600/s"
"""A checkpoint of a slow machine, which comes each second or two, still has most keys as they were."""
ON_DISK = ("--state-backend", "rocksdb", "--state-memory", "16MB")
Row = tuple[int, int | None, int | None]


@pytest.mark.parametrize(
    ("seed", "rows", "kills"),
    [(1, 6_000, 2), *(pytest.param(n, 40_000, 10, marks=pytest.mark.soak) for n in (2, 3))],
)
def test_each_pair_is_there_once_whatever_is_killed(
    seed: int,
    rows: int,
    kills: int,
    start_job: Any,
    engine: Any,
    broker: EmbeddedKafka,
    new_topic: Callable[..., str],
    tmp_path: Path,
) -> None:
    topics, pick = [new_topic(name, 2) for name in ("left", "right", "pairs")], random.Random(seed)
    events = [produced(broker.bootstrap_servers, topic, rows, pick, KEYS, text="") for topic in topics[:2]]
    arguments = (broker.bootstrap_servers, *topics, "interval", f"{WITHIN_MS} ms", "2500/s")
    start = starting(start_job, tmp_path, "pairs_in_time.py", arguments, pick)
    run_killed(start, kills, pick)
    expected = nested_loops(events[0], events[1], WITHIN_MS)
    found = (json.loads(value) for value in engine.read_topic(broker.bootstrap_servers, topics[2]))
    assert Counter((row["key"], row["n"], row["n_right"]) for row in found) == expected
    alone = sum(None in row for row in expected)
    print(f"{kills} kills, {expected.total()} rows, {alone} of them without a partner")


@pytest.mark.parametrize(
    ("kind", "seed", "rows", "kills"),
    [
        ("interval", 6, 9_000, 2),
        ("temporal", 9, 9_000, 2),
        ("window", 11, 9_000, 2),
        pytest.param("groups", 12, 9_000, 2, marks=pytest.mark.soak),
        *(
            pytest.param(kind, n, 20_000, 10, marks=pytest.mark.soak)
            for n, kind in enumerate(["interval", "interval", "temporal", "window"], 7)
        ),
    ],
)
def test_so_is_each_pair_of_a_join_on_disk_whose_checkpoints_hold_what_has_changed(
    kind: str,
    seed: int,
    rows: int,
    kills: int,
    start_job: Any,
    engine: Any,
    broker: EmbeddedKafka,
    new_topic: Callable[..., str],
    tmp_path: Path,
) -> None:
    topics, pick = [new_topic(name, 2) for name in ("left", "right", "pairs")], random.Random(seed)
    servers, text = broker.bootstrap_servers, "x" * LONG_TEXT
    events = [produced(servers, topic, rows, pick, MANY_KEYS, True, text=text) for topic in topics[:2]]
    (scratch := tmp_path / "scratch").mkdir()
    arguments = (servers, *topics, kind, f"{LONG_MS} ms", SLOW)
    start = starting(start_job, tmp_path, "pairs_in_time.py", arguments, pick, ON_DISK, scratch)
    told = run_killed(start, kills, pick, checkpoints=(2, 2))  # the second may build on the first
    sizes = [(e["written_bytes"], e["bytes"]) for e in told if e["event"] == "checkpoint_completed"]
    assert any(written < whole for written, whole in sizes), f"they build on each other: {sizes}"
    assert not [path for path in scratch.rglob("*") if path.is_file()], "files of who was killed"
    expected = MODELS[kind](events[0], events[1], LONG_MS)
    found = (json.loads(value) for value in engine.read_topic(servers, topics[2]))
    assert Counter((row["key"], row["n"], row["n_right"]) for row in found) == expected
    alone = sum(None in row for row in expected)
    print(f"{kills} kills, {expected.total()} rows, {alone} of them without a partner")


@pytest.mark.soak
@pytest.mark.parametrize("seed", [4, 5])
def test_the_table_of_a_regular_join_is_the_join_whatever_is_killed(
    seed: int, start_job: Any, broker: EmbeddedKafka, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    topics, pick = [new_topic(name, 2) for name in ("left", "right", "pairs")], random.Random(seed)
    events = [produced(broker.bootstrap_servers, topic, 12_000, pick, 4_000) for topic in topics[:2]]
    start = starting(start_job, tmp_path, "regular_pairs.py", (broker.bootstrap_servers, *topics), pick)
    run_killed(start, 10, pick)
    expected = nested_loops(events[0], events[1], EVER_MS)
    table, _, deletes = table_of(broker.bootstrap_servers, topics[2])
    assert Counter((row["key"], row["n"], row["n_right"]) for row in table) == expected
    alone = sum(None in row for row in expected)
    print(f"10 kills, {expected.total()} rows, {alone} of them without a partner, {deletes} deletes")
    assert deletes > 1_000


def starting(
    start_job: Any,
    folder: Path,
    program: str,
    arguments: tuple[str, ...],
    pick: random.Random,
    options: tuple[str, ...] = (),
    scratch: Path | None = None,
) -> Callable[[], JobProcess]:
    return lambda: start_job(
        folder / "ck",
        *arguments,
        program=JOBS / program,
        interval="50 ms",
        parallelism=pick.choice([1, 2, 3]),
        master="threads[3]",
        options=options,
        env={} if scratch is None else {"TMPDIR": str(scratch)},
    )


def nested_loops(left: Events, right: Events, within_ms: int) -> Counter[Row]:
    return rows_of(joined(by_key(left), by_key(right), lambda ours, other: abs(ours - other) <= within_ms))


def latest_versions(left: Events, right: Events, _: int) -> Counter[Row]:
    return rows_of(temporal_join(by_key(left), by_key(right)))


def rows_of(found: Counter[Found]) -> Counter[Row]:
    return Counter({(key, n, m): times for (key, n, m, _), times in found.items()})


def of_one_window(left: Events, right: Events, size_ms: int) -> Counter[Row]:
    return rows_of(
        joined(by_key(left), by_key(right), lambda ours, other: ours // size_ms == other // size_ms)
    )


MODELS = {
    "interval": nested_loops,
    "temporal": latest_versions,
    "window": of_one_window,
    "groups": of_one_window,
}
