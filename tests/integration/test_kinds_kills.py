"""Windows, joins and loops of each kind from Kafka to Kafka, their process killed again and again: each row
is there once, and each table is what it would be."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from onceflow.connectors.kafka.embedded import EmbeddedKafka
from tests.integration.jobs.kinds_of_windows import CONNECTED, KINDS, TABLES, TRIGGERED, UNITED
from tests.integration.killed_runs import run_killed
from tests.integration.models_of_kinds import MODELS, Events, Found, by_key
from tests.integration.numbered_events import produced, table_of

pytestmark = pytest.mark.kafka
PROGRAM = Path(__file__).parent / "jobs" / "kinds_of_windows.py"
KEYS = 50
ON_DISK = ("co_process", "sliding", "session", "interval_join", "late_session")
ROCKS = ("--state-backend", "rocksdb", "--state-memory", "16MB")


def judge(
    kinds: list[str], rows: list[bytes], table: list[dict[str, Any]], left: Events, right: Events
) -> None:
    """Each kind's rows are those of its model."""
    found: dict[str, Counter[Found]] = {kind: Counter() for kind in kinds}
    for row in [*map(json.loads, rows), *table]:
        found[row["kind"]][row["key"], row["a"], row["b"], row["c"]] += 1
    if "by_clock" in kinds:
        found["by_clock"] = summed(found["by_clock"])
    for kind in kinds:
        expected = MODELS[kind](by_key(left), by_key(right))
        lost, wrong = expected - found[kind], found[kind] - expected
        assert found[kind] == expected, (kind, sorted(map(str, lost))[:3], sorted(map(str, wrong))[:3])
        print(f"{kind}: {expected.total()} rows")


def summed(found: Counter[Found]) -> Counter[Found]:
    """Windows by the clock are others each time: together they have each row once."""
    sums: dict[Any, list[int]] = {}
    for (key, _, rows, total), times in found.items():
        of_key = sums.setdefault(key, [0, 0])
        of_key[0] += rows * times
        of_key[1] += total * times
    return Counter((key, None, rows, total) for key, (rows, total) in sums.items())


@pytest.mark.parametrize(
    ("kinds", "rows", "kills", "options"),
    [
        pytest.param(
            [kind for kind in KINDS if kind not in (*CONNECTED, *TRIGGERED, *UNITED)], 4_000, 3, (), id="all"
        ),
        pytest.param(TRIGGERED, 12_000, 3, (), id="triggered"),
        pytest.param([*CONNECTED, *UNITED], 4_000, 3, (), id="connected"),
        *(pytest.param([kind], 6_000, 2, (), id=kind, marks=pytest.mark.soak) for kind in KINDS),
        *(
            pytest.param([kind], 6_000, 2, ROCKS, id=f"{kind}-rocksdb", marks=pytest.mark.soak)
            for kind in (
                "co_process",
                "sliding",
                "session",
                "session_join",
                "interval_join",
                "late_session",
                "sliding_count",
            )
        ),
    ],
)
def test_each_kind_is_exact_whatever_is_killed(
    kinds: list[str],
    rows: int,
    kills: int,
    options: tuple[str, ...],
    start_job: Any,
    engine: Any,
    broker: EmbeddedKafka,
    new_topic: Callable[..., str],
    tmp_path: Path,
) -> None:
    pick = random.Random(f"{kinds}{options}")
    topics = [new_topic(name, 2) for name in ("left", "right", "rows", "table")]
    servers = broker.bootstrap_servers
    left, right = (produced(servers, topic, rows, pick, KEYS, are_together=True) for topic in topics[:2])

    def start() -> Any:
        return start_job(
            tmp_path / "ck",
            servers,
            *topics,
            *kinds,
            program=PROGRAM,
            interval="50 ms",
            parallelism=pick.choice([1, 2, 3]),
            master="threads[3]",
            options=options,
        )

    run_killed(start, kills, pick)
    table, changes, _ = table_of(servers, topics[3])
    judge(kinds, engine.read_topic(servers, topics[2]), table, left, right)
    print(f"{kills} kills")
    assert changes > len(table) or not set(kinds) & set(TABLES), "rows were updated or deleted"
