"""A job that writes into OpenSearch, or Elasticsearch, is killed inside its commits, and so is its server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.opensearch_server import ElasticsearchServer, OpenSearchServer
from tests.upsert_kills import KINDS, run_with_kills

pytestmark = [pytest.mark.opensearch, pytest.mark.spark, pytest.mark.soak, pytest.mark.timeout(900)]


class Store(OpenSearchServer):
    """See StoreUnderTest."""

    name, rate, write_word = "opensearch", 400, b'"version_type":"external"'

    def address(self, port: int) -> str:
        return f"http://127.0.0.1:{port}"

    def numbers(self) -> list[int]:
        return sorted(map(int, self.documents("numbered")))

    def counts(self) -> Mapping[str, int]:
        return {key: document["times"] for key, document in self.documents("counted").items()}


class Elasticsearch(ElasticsearchServer, Store):
    """Another program that answers the same requests."""


@pytest.fixture(params=[Store, Elasticsearch], ids=["opensearch", "elasticsearch"])
def server(request: pytest.FixtureRequest) -> Iterator[Store]:
    with request.param() as server:
        yield server


def test_the_last_row_of_each_key_is_there_whoever_is_killed(
    server: Store, start_job: Any, engine: Any, tmp_path: Path
) -> None:
    run_with_kills(["slot", "rewind", "server"], server, start_job, engine, tmp_path / "ck")


@pytest.mark.parametrize("part", range(4))
def test_six_kills(part: int, server: Store, start_job: Any, engine: Any, tmp_path: Path) -> None:
    run_with_kills([*KINDS[part:], *KINDS[:part]], server, start_job, engine, tmp_path / "ck")
