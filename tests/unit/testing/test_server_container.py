"""tests/server_container.py: container or process is decided by variables and the engine, and is told."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest

from tests import server_container
from tests.server_container import RECIPES, Container, container_of, image_of

Counted = Callable[[], list[str]]


@pytest.fixture
def counted() -> Iterator[Counted]:
    """What is new in what ran. It is forgotten, since nothing did run."""
    before = server_container.RAN.copy()
    yield lambda: sorted(server_container.RAN - before)
    server_container.RAN.clear()
    server_container.RAN.update(before)


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ONCEFLOW_TEST_SERVERS", *(f"ONCEFLOW_IMAGE_{name.upper()}" for name in RECIPES)):
        monkeypatch.delenv(name, raising=False)


def test_without_a_named_image_it_is_a_process(counted: Counted) -> None:
    assert container_of("redis", "6.2", [1]) is None
    assert counted() == ["redis: process 6.2, no image is named"]


def test_the_image_of_a_variable_comes_before_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    assert {image_of(name) for name in RECIPES} == {""}
    monkeypatch.setenv("ONCEFLOW_TEST_SERVERS", "container")
    monkeypatch.setenv("ONCEFLOW_IMAGE_REDIS", "valkey:8")
    assert image_of("redis") == "valkey:8"
    assert image_of("postgres") == RECIPES["postgres"].image != ""


def test_without_an_engine_it_is_a_process_and_the_summary_says_why(
    monkeypatch: pytest.MonkeyPatch, counted: Counted
) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
    monkeypatch.setenv("ONCEFLOW_IMAGE_REDIS", f"redis-{uuid.uuid4().hex}")
    assert container_of("redis", "6.2", [1]) is None
    assert counted() == ["redis: process 6.2, there is no container engine"]


def test_without_both_the_test_is_skipped_and_says_why(
    monkeypatch: pytest.MonkeyPatch, counted: Counted
) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
    monkeypatch.setenv("ONCEFLOW_IMAGE_RABBITMQ", f"rabbitmq-{uuid.uuid4().hex}")
    said = r"^no Erlang here; no container, either \(ONCEFLOW_IMAGE_RABBITMQ\): there is no container engine$"
    with pytest.raises(pytest.skip.Exception, match=said):
        container_of("rabbitmq", "", [1, 2, 3], lambda: "no Erlang here")
    assert counted() == []


def test_a_container_that_never_started_is_closed_and_has_no_log() -> None:
    container = Container("redis:7", RECIPES["redis"], [1])
    container.kill()
    container.close()
    assert container.log() == ""


@pytest.mark.docker
def test_an_image_that_can_not_be_had_is_named(monkeypatch: pytest.MonkeyPatch, counted: Counted) -> None:
    if not server_container.has_engine():
        pytest.skip("there is no container engine: `docker version` fails")
    image = f"onceflow.invalid/redis:{uuid.uuid4().hex}"
    monkeypatch.setenv("ONCEFLOW_IMAGE_REDIS", image)
    assert container_of("redis", "6.2", [1]) is None
    assert counted() == [f"redis: process 6.2, {image} is not here and can't be pulled"]
