"""A job that posts rows is killed inside its commits, and so is the receiver: each row is there, and under
one key only."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from onceflow.connectors.generator.source import SPLITS
from tests.commit_kills import KINDS, KilledJob
from tests.webhook_receiver import WebhookReceiver

pytestmark = pytest.mark.spark
PROGRAM = Path(__file__).parent / "jobs" / "posted_rows.py"
ONCE = [kind for kind in KINDS if kind != "rewind"]
"""Going back sends again what was sent since, under other keys: the sink has no ledger that would know."""


class Receiver(WebhookReceiver):
    """See StoreUnderTest."""

    name, rate, write_word = "http", 400, b"Idempotency-Key"

    def address(self, port: int) -> str:
        return f"http://127.0.0.1:{port}/rows"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


def run_with_kills(kinds: list[str], receiver: Receiver, start_job: Any, engine: Any, folder: Path) -> None:
    seen = 0

    def look(_: str) -> None:
        nonlocal seen
        seen = len(receiver.taken())

    killed = KilledJob(receiver, PROGRAM, start_job, engine, folder, len(kinds))
    killed.run(kinds, look, lambda: len(receiver.taken()) > seen)
    numbers = sorted(row["number"] for row in receiver.taken())
    for split in range(SPLITS):
        made = [n for n in numbers if n % SPLITS == split]
        assert made == list(range(split, split + SPLITS * len(made), SPLITS)), "lost or doubled"


def test_each_row_is_there_once_whoever_is_killed(
    receiver: Receiver, start_job: Any, engine: Any, tmp_path: Path
) -> None:
    run_with_kills(["slot", "lost answer"], receiver, start_job, engine, tmp_path / "ck")


@pytest.mark.soak
@pytest.mark.parametrize("part", range(4))
def test_six_kills(part: int, receiver: Receiver, start_job: Any, engine: Any, tmp_path: Path) -> None:
    kinds = [*ONCE[part:], *ONCE[:part], ONCE[part]]
    run_with_kills(kinds, receiver, start_job, engine, tmp_path / "ck")
