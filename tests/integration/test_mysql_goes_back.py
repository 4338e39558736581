"""A job goes back although its rows are in MariaDB: the table by key is right in the end, and rows that were
appended are there twice only if the user has accepted it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.jobs.mysql_rows import USERS
from tests.mysql_server import WHY_NOT, MySqlServer

pytestmark = [
    pytest.mark.mysql,
    pytest.mark.soak,
    pytest.mark.timeout(900),
    pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT),
]
PROGRAM = Path(__file__).parent / "jobs" / "mysql_rows.py"
RECORDS = 12_000


@pytest.fixture
def server() -> Iterator[MySqlServer]:
    with MySqlServer() as server:
        yield server


def test_what_is_kept_by_key_is_right_and_what_is_appended_is_doubled_where_it_may_be(
    server: MySqlServer, start_job: Any, engine: Any, tmp_path: Path
) -> None:
    folder = tmp_path / "ck"

    def start(rate: int, *options: str) -> Any:
        settings = {"program": PROGRAM, "master": "threads[2]", "options": ["--retained", "50", *options]}
        return start_job(folder, "mysql", server.url, str(RECORDS), str(rate), **settings)

    job = start(300)  # there is input left, however long four checkpoints take
    for _ in range(4):
        job.wait_event("checkpoint_completed", after=job.mark)
    job.kill_group()
    job.wait()
    to = engine.manifests(folder)[-3]["checkpoint_id"]

    refused = start(300, "--from", str(to))
    assert refused.wait(120) == 1, refused.story()
    assert f"--accept-duplicates-after {to}" in refused.errors(), refused.errors()

    command = ["--from", str(to), "--accept-duplicates-after", str(to)]
    back = start(300, *command)
    assert set(back.wait_event("went_back")["doubled"]) == {"appended"}
    back.wait_event("checkpoint_completed", after=back.mark)
    back.kill_group()
    back.wait()
    again = start(6_000, *command)
    assert again.wait(240) == 0, again.story()
    assert not again.named("went_back")

    counted = dict(server.rows("SELECT user, times FROM counted"))
    assert counted == Counter(f"u{n % USERS}" for n in range(RECORDS))
    times = Counter(server.rows("SELECT number FROM appended"))
    assert times.keys() == set(range(RECORDS))
    assert set(times.values()) == {1, 2}
    for split in (0, 1):  # the generator's, which were read each up to a place of its own
        twice = sorted(n for n, count in times.items() if count == 2 and n % 2 == split)
        assert twice == list(range(twice[0], twice[-1] + 1, 2)), "those of the abandoned time, no others"
