"""A job that writes into MariaDB is killed while a COMMIT is held back, and so is its server: each row is
there once, also when the COMMIT of a writer that is dead comes late."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from onceflow.connectors.generator.source import SPLITS
from tests.commit_kills import KINDS, KilledJob
from tests.integration.jobs.mysql_rows import USERS
from tests.mysql_server import WHY_NOT, MySqlServer

pytestmark = [
    *(pytest.mark.mysql, pytest.mark.spark, pytest.mark.timeout(900)),
    pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT),
]
PROGRAM = Path(__file__).parent / "jobs" / "mysql_rows.py"
KILLS = [kind for kind in KINDS if kind != "rewind"]  # which doubles rows: test_mysql_goes_back


class MySql(MySqlServer):
    """See StoreUnderTest."""

    name, rate, write_word = "mysql", 500, b"\x03COMMIT"

    def address(self, port: int) -> str:
        return self.url_by(port)

    def numbers(self) -> list[int]:
        return self.rows("SELECT number FROM appended ORDER BY number")

    def counts(self) -> Mapping[str, int]:
        return dict(self.rows("SELECT user, times FROM counted"))


@pytest.fixture
def server() -> Iterator[MySql]:
    with MySql() as server:
        yield server


def run_with_kills(kinds: list[str], server: MySql, start_job: Any, engine: Any, folder: Path) -> None:
    """Nothing is there twice after any of them, and nothing is missing in the end."""

    def look(kind: str) -> None:
        times = Counter(server.numbers())
        assert times, kind
        assert max(times.values()) == 1, kind

    KilledJob(server, PROGRAM, start_job, engine, folder, len(kinds)).run(kinds, look, lambda: True)
    numbers = server.numbers()
    for split in range(SPLITS):
        made = [n for n in numbers if n % SPLITS == split]
        assert made == list(range(split, split + SPLITS * len(made), SPLITS))
    assert server.counts() == Counter(f"u{n % USERS}" for n in numbers)


def test_each_row_is_there_once_whoever_is_killed_inside_a_commit(
    server: MySql, start_job: Any, engine: Any, tmp_path: Path
) -> None:
    run_with_kills(["slot", "server"], server, start_job, engine, tmp_path / "ck")


@pytest.mark.soak
@pytest.mark.parametrize("part", range(5))
def test_five_kills(part: int, server: MySql, start_job: Any, engine: Any, tmp_path: Path) -> None:
    kinds = [*KILLS[part:], *KILLS[:part]]
    run_with_kills(kinds, server, start_job, engine, tmp_path / "ck")
