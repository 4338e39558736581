"""Calls that are always in flight, slots and driver killed again and again: each record comes out once."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.integration.killed_runs import run_with_slots_killed

pytestmark = pytest.mark.spark
PROGRAM = Path(__file__).parent / "jobs" / "asked.py"


def written(folder: Path) -> Counter[tuple[int, int]]:
    rows: Counter[tuple[int, int]] = Counter()
    for path in folder.glob("out-*.jsonl"):
        rows.update((row["id"], row["cents"]) for row in map(json.loads, path.read_text().splitlines()))
    return rows


@pytest.mark.parametrize(
    ("kills", "orders", "how"),
    [(2, 4_000, "unordered"), pytest.param(20, 40_000, "ordered", marks=pytest.mark.soak)],
)
def test_each_record_comes_out_once(
    kills: int, orders: int, how: str, start_job: Any, tmp_path: Path
) -> None:
    pick = random.Random(kills)

    def start(parallelism: int) -> Any:
        arguments = (str(tmp_path / "out"), str(orders), "2000", how)
        settings = {"program": PROGRAM, "interval": "150 ms", "parallelism": parallelism}
        return start_job(tmp_path / "ck", *arguments, master=f"local[{parallelism}]", **settings)

    run_with_slots_killed(start, kills, pick, slots_of_three=1)
    expected = Counter((number, number * 100) for number in range(orders))
    found = written(tmp_path / "out")
    assert found == expected, (len(expected - found), len(found - expected))
