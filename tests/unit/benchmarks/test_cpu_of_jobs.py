"""What a job has used from its start to its end, and what is there of the rows that sinks were given."""

from __future__ import annotations

import sys

import pytest

from benchmarks.cpu_of_jobs import Failed, ended
from benchmarks.flink_sinks import expected_of
from benchmarks.jobs.written_rows import KEYS, PRICE, PRICES

BUSY_CHILD = """
import subprocess, sys
work = "from time import process_time\\nwhile process_time() < 0.5: pass"
subprocess.run([sys.executable, "-c", work])
print("found 12")
"""


def test_the_cpu_of_a_jobs_children_counts() -> None:
    job = ended([sys.executable, "-c", BUSY_CHILD])
    assert job.cpu_s >= 0.5
    assert job.text == "found 12\n"


def test_a_job_that_fails_has_no_figure_but_a_reason() -> None:
    with pytest.raises(Failed, match="ValueError: no room"):
        ended([sys.executable, "-c", "raise ValueError('no room')"])


def test_all_rows_have_to_be_there_and_of_a_key_the_last() -> None:
    def cents(first: int, end: int) -> int:
        return sum(n * PRICE % PRICES for n in range(first, end))

    rows = KEYS + 7
    assert expected_of("append", rows) == (rows, rows, cents(0, rows))
    assert expected_of("upsert", rows) == (KEYS, KEYS, cents(7, rows))
    assert expected_of("upsert", 3) == (3, 3, cents(0, 3))
