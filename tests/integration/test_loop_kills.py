"""A loop that never stands still, its slots and its driver killed again and again: each row leaves once."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.integration.jobs.carousel import ROUNDS
from tests.integration.killed_runs import run_with_slots_killed

pytestmark = pytest.mark.spark
PROGRAM = Path(__file__).parent / "jobs" / "carousel.py"


def left(folder: Path) -> Counter[tuple[int, int]]:
    """Who has left, and after how many rounds."""
    rows: Counter[tuple[int, int]] = Counter()
    for path in folder.glob("out-*.jsonl"):
        rows.update((row["id"], row["rounds"]) for row in map(json.loads, path.read_text().splitlines()))
    return rows


@pytest.mark.parametrize(("kills", "riders"), [(3, 6_000), pytest.param(20, 40_000, marks=pytest.mark.soak)])
def test_each_row_leaves_a_loop_once_and_the_job_ends(
    kills: int, riders: int, start_job: Any, tmp_path: Path
) -> None:
    pick = random.Random(kills)

    def start(parallelism: int) -> Any:
        arguments = (str(tmp_path / "out"), str(riders), "2000")
        settings = {"program": PROGRAM, "interval": "150 ms", "parallelism": parallelism}
        return start_job(tmp_path / "ck", *arguments, master=f"local[{parallelism}]", **settings)

    run_with_slots_killed(start, kills, pick, slots_of_three=2)
    expected = Counter((number, 1 + number % ROUNDS) for number in range(riders))
    found = left(tmp_path / "out")
    assert found == expected, (len(expected - found), len(found - expected))
