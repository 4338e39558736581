"""A loop that never stands still, its slots and its driver killed again and again: each row leaves once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.integration.jobs.carousel import ROUNDS
from tests.repeated_kills import check_rows, run_with_kills

pytestmark = pytest.mark.spark
PROGRAM = Path(__file__).parent / "jobs" / "carousel.py"


@pytest.mark.parametrize(("kills", "riders"), [(3, 6_000), pytest.param(20, 40_000, marks=pytest.mark.soak)])
def test_each_row_leaves_a_loop_once_and_the_job_ends(
    kills: int, riders: int, start_job: Any, tmp_path: Path
) -> None:
    """After as many rounds as it has to make."""
    run_with_kills(PROGRAM, (str(riders), "2000"), kills, start_job, tmp_path, 2, 3)
    check_rows(tmp_path, ("id", "rounds"), Counter((n, 1 + n % ROUNDS) for n in range(riders)))
