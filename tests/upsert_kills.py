"""A job that upserts into a store is killed inside its commits, and so is the store: whatever happens, the
last row of each key is there in the end, and no count goes back on the way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from onceflow.connectors.generator.source import SPLITS
from tests.commit_kills import KINDS, KilledJob, StoreUnderTest
from tests.integration.jobs.upserted_rows import USERS

__all__ = ["KINDS", "UpsertedStore", "run_with_kills"]
PROGRAM = Path(__file__).parent / "integration" / "jobs" / "upserted_rows.py"
AHEAD = 1_000
"""How far one split of the source may be ahead of another, in records."""


class UpsertedStore(StoreUnderTest, Protocol):
    def numbers(self) -> list[int]:
        """The keys of the rows."""
        ...

    def counts(self) -> Mapping[str, int]: ...


def run_with_kills(kinds: list[str], store: UpsertedStore, start_job: Any, engine: Any, folder: Path) -> None:
    """Each kill comes while a request is held that writes rows."""
    counts = dict(store.counts())

    def look(kind: str) -> None:
        nonlocal counts
        now = dict(store.counts())
        if kind != "rewind":
            assert not [user for user, count in counts.items() if now[user] < count], "a count went back"
        counts = now
        highest.append(max(store.numbers(), default=0))

    highest = [0]

    def is_enough() -> bool:
        """Rows of a commit that was abandoned by going back stay until their keys are written again."""
        return sum(store.counts().values()) > highest[-1] + AHEAD

    KilledJob(store, PROGRAM, start_job, engine, folder, len(kinds)).run(kinds, look, is_enough)
    numbers = store.numbers()
    for split in range(SPLITS):
        made = {n for n in numbers if n % SPLITS == split}
        lost = set(range(split, max(made), SPLITS)) - made
        assert not lost, f"{len(lost)} rows up to {max(made)} are not there: {sorted(lost)[:10]}"
    assert dict(store.counts()) == Counter(f"u{n % USERS}" for n in numbers)
