"""tests/server_container.py: container or process is decided by variables and the engine, and is told."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

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


@pytest.fixture(autouse=True)
def looked_for_anew() -> Iterator[None]:
    for known in (server_container.hindrance, server_container.has_engine):
        known.cache_clear()
    yield
    for known in (server_container.hindrance, server_container.has_engine):
        known.cache_clear()


def engine_with(folder: Path, monkeypatch: pytest.MonkeyPatch, *images: str) -> Path:
    """A `docker` that has these images and can pull no others; what it was asked is in a file."""
    asked, program = folder / "asked", folder / "docker"
    program.write_text(
        f'#!/bin/sh\necho "$@" >> {asked}\n'
        'case "$1" in version) exit 0;; pull) exit 1;; esac\n'
        f'case " {" ".join(images)} " in *" $3 "*) exit 0;; esac\nexit 1\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return asked


def test_an_image_that_is_here_is_used_and_none_is_pulled_that_nobody_has_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counted: Counted
) -> None:
    asked = engine_with(tmp_path, monkeypatch, "redis:7")
    assert isinstance(container_of("redis", "6.2", [1]), Container)
    assert container_of("postgres", "16", [1]) is None
    assert counted() == [
        "postgres: process 16, postgres:16 is not here, and no image is named",
        "redis: container redis:7",
    ]
    assert "pull" not in asked.read_text()


def test_processes_can_be_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counted: Counted
) -> None:
    engine_with(tmp_path, monkeypatch, "redis:7")
    monkeypatch.setenv("ONCEFLOW_TEST_SERVERS", "process")
    assert container_of("redis", "6.2", [1]) is None
    assert counted() == ["redis: process 6.2, ONCEFLOW_TEST_SERVERS=process"]


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
