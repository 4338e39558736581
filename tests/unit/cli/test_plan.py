"""`onceflow plan`: what it shows of the three examples."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TOPICS = ["--", "--input", "in", "--output", "out"]

TOTALS = """\
windowed-totals  parallelism 2, max_parallelism 128
├── chain 0
│   └── events  KafkaSource  user string, amount int64, ts int64
│       ├── event time ts, out of order by 2000 ms, idle after 5000 ms
│       └── totals-per-window.columns  columns  user string, amount int64
│           └── → by key user to chain 1
└── chain 1  by key user from chain 0
    └── totals-per-window  window 10000 ms by user  user string, window_start int64, window_end int64, \
count int64, total int64
        └── totals-per-window.select  select  user string, window_end int64, count int64, total int64
            └── totals  KafkaSink
"""

WORDS = """\
word-count  parallelism as many as the master offers, max_parallelism 128
├── chain 0
│   └── lines  KafkaSource  text string, ts int64
│       ├── event time ts, out of order by 2000 ms, idle after 5000 ms
│       └── lines.flat_map-split  flat_map split  word string
│           └── → by key word to chain 1
└── chain 1  by key word from chain 0
    └── words-per-window  window 10000 ms by word  word string, window_start int64, window_end int64, \
count int64
        └── counts  KafkaSink
"""

FIRES = """\
fire-detection  parallelism as many as the master offers, max_parallelism 128
├── chain 0
│   └── readings  KafkaSource  sensor string, celsius double, ts int64
│       ├── event time ts, out of order by 1000 ms, idle after 5000 ms
│       └── → by key sensor to chain 1
└── chain 1  by key sensor from chain 0
    └── fire-alert  process FireAlert by sensor  sensor string, since int64, celsius double
        └── alerts  KafkaSink
"""


def plan(*arguments: str) -> subprocess.CompletedProcess[str]:
    program = "from onceflow.cli.app import main; main()"
    command = [sys.executable, "-c", program, "plan", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)


@pytest.mark.parametrize(
    ("example", "options", "tree"),
    [
        ("windowed_totals", ["--parallelism", "2"], TOTALS),
        ("word_count", [], WORDS),
        ("fire_detection", [], FIRES),
    ],
)
def test_the_plan_of_an_example(example: str, options: list[str], tree: str) -> None:
    shown = plan(f"examples/{example}.py", *options, *TOPICS)
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout == tree


def test_json() -> None:
    shown = plan("examples/windowed_totals.py", "--json", *TOPICS)
    described = json.loads(shown.stdout)
    assert [[o["uid"] for o in chain["operators"]] for chain in described["chains"]] == [
        ["events", "totals-per-window.columns"],
        ["totals-per-window", "totals-per-window.select", "totals"],
    ]
    (exchange,) = described["exchanges"]
    assert exchange["partitioning"] == "by key"
    assert exchange["key"] == ["user"]
    assert list(exchange["columns"]) == ["user", "amount"]


def test_it_says_who_makes_the_watermarks() -> None:
    shown = plan("docs/examples/watermarks.py").stdout
    assert "event time ts, watermarks from column complete_until, never idle" in shown
    assert "event time ts, watermarks by Patient, never idle" in shown
    ahead = "never idle, splits at most 3600000 ms ahead of the slowest in group clicks"
    assert f"event time ts, out of order by 0 ms, {ahead}" in shown


def test_a_mistake_is_one_sentence_and_exit_code_2() -> None:
    shown = plan("examples/windowd_totals.py")
    assert shown.returncode == 2
    assert shown.stderr == (
        "onceflow: there is no file examples/windowd_totals.py "
        "(did you mean 'examples/windowed_totals.py'?)\n"
    )
