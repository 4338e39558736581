"""A job that writes into Redis is killed inside its commits, and so is its server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.redis_server import RedisServer
from tests.upsert_kills import KINDS, run_with_kills

pytestmark = [pytest.mark.redis, pytest.mark.spark, pytest.mark.soak]


class Redis(RedisServer):
    """See StoreUnderTest."""

    name, rate, write_word = "redis", 2_000, b"numbered:1"

    def address(self, port: int) -> str:
        return self.url.replace(str(self.port), str(port))

    def numbers(self) -> list[int]:
        return sorted(map(int, self.keys("numbered")))

    def counts(self) -> Mapping[str, int]:
        with self.client() as client:
            found: Any = {key: client.hget(f"counted:{key}", "times") for key in self.keys("counted")}
        return {key: int(times) for key, times in found.items()}


@pytest.fixture
def server() -> Iterator[Redis]:
    with Redis() as server:
        yield server


def test_the_last_row_of_each_key_is_there_whoever_is_killed(
    server: Redis, start_job: Any, engine: Any, tmp_path: Path
) -> None:
    run_with_kills(["slot", "rewind", "server"], server, start_job, engine, tmp_path / "ck")


@pytest.mark.parametrize("part", range(2))
def test_twelve_kills(part: int, server: Redis, start_job: Any, engine: Any, tmp_path: Path) -> None:
    run_with_kills([*KINDS[part:], *KINDS, *KINDS[:part]], server, start_job, engine, tmp_path / "ck")
