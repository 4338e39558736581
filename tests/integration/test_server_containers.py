"""Servers of the tests in containers: what was written before a kill is there when they are started again.

The images are those that the variables name, else the table's (tests/server_container.py).
"""

from __future__ import annotations

import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cassandra_server import KEYSPACE, CassandraServer
from tests.integration.schema_registry.conftest import apicurio
from tests.mysql_server import MySqlServer
from tests.opensearch_server import OpenSearchServer
from tests.postgres_server import PostgresServer
from tests.rabbitmq_server import RabbitServer
from tests.redis_server import RedisServer
from tests.s3_server import S3Server
from tests.server_container import RAN, hindrance, image_of

pytestmark = [pytest.mark.docker, pytest.mark.timeout(900)]


@contextmanager
def of_postgres() -> Iterator[tuple[Any, Callable[[], object]]]:
    with PostgresServer() as server:
        server.execute("CREATE TABLE t AS SELECT 1 AS n")
        yield server, lambda: server.rows("SELECT n FROM t") == [1]


@contextmanager
def of_mariadb() -> Iterator[tuple[Any, Callable[[], object]]]:
    with MySqlServer() as server:
        server.execute("CREATE TABLE t (n int)", "INSERT INTO t VALUES (1)")
        yield server, lambda: server.rows("SELECT n FROM t") == [1]


@contextmanager
def of_redis() -> Iterator[tuple[Any, Callable[[], object]]]:
    with RedisServer() as server:
        server.client().set("a:b", "1")
        yield server, lambda: server.keys("a") == ["b"]


@contextmanager
def of_rabbitmq() -> Iterator[tuple[Any, Callable[[], object]]]:
    with RabbitServer() as server:
        server.connect().channel().queue_declare("q", durable=True)
        yield server, lambda: server.messages("q") == 0


@contextmanager
def of_s3() -> Iterator[tuple[Any, Callable[[], object]]]:
    with S3Server() as server:
        path = f"{server.new_bucket()}/a"
        server.fs.pipe(path, b"1")
        yield server, lambda: server.fs.cat(path) == b"1"


@contextmanager
def of_opensearch() -> Iterator[tuple[Any, Callable[[], object]]]:
    with OpenSearchServer() as server:
        server.ask("PUT", "/t/_doc/1", {"n": 1})
        yield server, lambda: server.documents("t") == {"1": {"n": 1}}


@contextmanager
def of_cassandra() -> Iterator[tuple[Any, Callable[[], object]]]:
    with CassandraServer() as server:
        server.ask(f"CREATE TABLE {KEYSPACE}.t (n int PRIMARY KEY)")
        server.ask(f"INSERT INTO {KEYSPACE}.t (n) VALUES (1)")
        yield server, lambda: [row.n for row in server.ask(f"SELECT n FROM {KEYSPACE}.t")] == [1]


Opened = AbstractContextManager[tuple[Any, Callable[[], object]]]
SERVERS: dict[str, Callable[[], Opened]] = {
    "cassandra": of_cassandra,
    "mariadb": of_mariadb,
    "opensearch": of_opensearch,
    "postgres": of_postgres,
    "rabbitmq": of_rabbitmq,
    "redis": of_redis,
    "s3": of_s3,
}


@pytest.fixture
def image(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The image of the server that the test names. Without it the test is skipped."""
    monkeypatch.setenv("ONCEFLOW_TEST_SERVERS", "container")
    image = image_of(request.param)
    if why := hindrance(image):
        pytest.skip(f"{why}; ONCEFLOW_IMAGE_{request.param.upper()} names another")
    return image


def containers(image: str) -> set[str]:
    """The ids of an image's containers, of those that do not run, too."""
    command = ["docker", "ps", "-aq", "--filter", f"ancestor={image}"]
    return set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())


@pytest.mark.parametrize(("image", "name"), [(name, name) for name in SERVERS], indirect=["image"])
def test_a_container_that_is_killed_has_what_was_written(image: str, name: str) -> None:
    before, ran = containers(image), RAN[f"{name}: container {image}"]
    with SERVERS[name]() as (server, is_there):
        assert len(containers(image) - before) == 1
        assert is_there()
        getattr(server, "kill", getattr(server, "stop", None))()
        server.start()
        assert is_there()
    assert containers(image) <= before, "it is gone with what it wrote"
    assert RAN[f"{name}: container {image}"] == ran + 1


@pytest.mark.parametrize("image", ["registry"], indirect=True)
def test_the_registry_answers_in_a_container(image: str, tmp_path: Path) -> None:
    before = containers(image)
    with apicurio(tmp_path) as url:
        assert len(containers(image) - before) == 1
        with urllib.request.urlopen(f"{url}/subjects") as answer:
            assert answer.read() == b"[]"
    assert containers(image) <= before
