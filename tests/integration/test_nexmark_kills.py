"""A job over Nexmark's bids is killed over and over: each bid is there once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onceflow.connectors.nexmark import nexmark

PROGRAM = Path(__file__).parent / "jobs" / "nexmark_bids.py"


def lines(folder: Path) -> Counter[str]:
    found: Counter[str] = Counter()
    for path in folder.glob("out-*.jsonl"):
        found.update(path.read_text().splitlines())
    return found


def run_with_kills(kills: int, events: int, start_job: Any, engine: Any, folder: Path) -> None:
    def start() -> Any:
        arguments = (folder / "ck", str(folder / "out"), str(events), "5000")
        return start_job(*arguments, program=PROGRAM, interval="100 ms")

    job = start()
    for _ in range(kills):
        before = lines(folder / "out").total()
        engine.wait_for(lambda count=before: lines(folder / "out").total() > count, job)
        job.kill_group()
        job.wait()
        job = start()
    assert job.wait(240) == 0, job.story()
    found, source = lines(folder / "out"), nexmark("bid", events=events)
    assert source.count is not None
    wanted = source.maker.batch(np.arange(source.count, dtype=np.int64), ["auction", "extra"]).to_pylist()
    assert found == Counter(f'{{"auction":{row["auction"]},"extra":"{row["extra"]}"}}' for row in wanted)


def test_each_bid_is_there_once_whoever_is_killed(start_job: Any, engine: Any, tmp_path: Path) -> None:
    run_with_kills(2, 10_000, start_job, engine, tmp_path)


@pytest.mark.soak
def test_twenty_kills(start_job: Any, engine: Any, tmp_path: Path) -> None:
    run_with_kills(20, 400_000, start_job, engine, tmp_path)
