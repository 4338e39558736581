"""Calls that are always in flight, slots and driver killed again and again: each record comes out once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.repeated_kills import check_rows, run_with_kills

pytestmark = pytest.mark.spark
PROGRAM = Path(__file__).parent / "jobs" / "asked.py"


@pytest.mark.parametrize(
    ("kills", "orders", "how"),
    [(2, 4_000, "unordered"), pytest.param(20, 40_000, "ordered", marks=pytest.mark.soak)],
)
def test_each_record_comes_out_once(
    kills: int, orders: int, how: str, start_job: Any, tmp_path: Path
) -> None:
    run_with_kills(PROGRAM, (str(orders), "2000", how), kills, start_job, tmp_path, 1, 2)
    check_rows(tmp_path, ("id", "cents"), Counter((number, number * 100) for number in range(orders)))
