"""Fixtures for tests of jobs on a real broker; pytest finds them by itself once onceflow is installed.

    def test_totals(topic, run_job):
        purchases, totals = topic("purchases"), topic("totals")
        purchases.produce(Purchase("ann", 5, 0), Purchase("ann", 7, 20_000))
        run_job(build(purchases.bootstrap_servers, purchases.name, totals.name))
        assert totals.records(1) == [{"user": "ann", ...}]

Every run of pytest loads this module, so it imports what is heavy only where a fixture is used.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from onceflow.runtime.api.job import Job
    from onceflow.testing.background_job import BackgroundJob
    from onceflow.testing.topic import Topic


BROKERS = ("process", "container")
VARIABLE = "ONCEFLOW_BROKER"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--onceflow-bootstrap-servers",
        metavar="HOST:PORT",
        help="a Kafka for the fixtures of onceflow; without it one is started",
    )
    parser.addoption(
        "--onceflow-broker",
        choices=BROKERS,
        help="how the fixtures of onceflow start a Kafka: a process (default), or a container",
    )
    parser.addoption(
        "--onceflow-kafka-image", metavar="IMAGE", help="the image of --onceflow-broker=container"
    )
    parser.addini("onceflow_broker", f"as --onceflow-broker; environment: {VARIABLE}")
    parser.addini("onceflow_kafka_image", "as --onceflow-kafka-image")


def pytest_configure(config: pytest.Config) -> None:
    # kafka-python's, when it is imported: nothing that somebody who tests a job could do anything about.
    config.addinivalue_line("filterwarnings", "ignore:(read|open)_text is deprecated:DeprecationWarning")


def broker_kind(config: pytest.Config) -> str:
    """`process` or `container`: what the first of these says that says anything: --onceflow-broker, the
    environment variable ONCEFLOW_BROKER, `onceflow_broker` in pytest's ini file."""
    given = (
        config.getoption("--onceflow-broker") or os.environ.get(VARIABLE) or config.getini("onceflow_broker")
    )
    if given and given not in BROKERS:
        raise pytest.UsageError(f"onceflow_broker (or {VARIABLE}) is {given!r}: write process or container")
    return given or BROKERS[0]


@pytest.fixture(scope="session")
def onceflow_broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The address of a real Kafka: the one that --onceflow-bootstrap-servers names, else a broker of this
    session's (of this worker's, with xdist), as a process or by testcontainers in a container: see
    `broker_kind`. Define a fixture of this name to bring your own."""
    given = request.config.getoption("--onceflow-bootstrap-servers")
    if given:
        yield str(given)
        return
    if broker_kind(request.config) == "container":
        from onceflow.testing.container_broker import IMAGE, container_broker

        image = request.config.getoption("--onceflow-kafka-image") or request.config.getini(
            "onceflow_kafka_image"
        )
        with container_broker(image or IMAGE) as address:
            yield address
        return
    from onceflow.connectors.kafka.embedded import EmbeddedKafka

    with EmbeddedKafka(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def topic(onceflow_broker: str) -> Callable[..., Topic]:
    """`topic("orders", partitions=2)` makes a topic whose name begins so and which no other test has."""
    from onceflow.testing.topic import Topic, unique

    def make(stem: str = "topic", partitions: int = 1) -> Topic:
        return Topic(onceflow_broker, unique(stem), partitions)

    return make


@pytest.fixture
def run_job(tmp_path: Any) -> Iterator[Callable[..., BackgroundJob]]:
    """`run_job(job)` starts a job on threads of this process, beside the test, and gives a BackgroundJob:
    `.wait()` if its sources have an end, `.stop()` else. What still runs when the test ends is cancelled.

    Options are those of Job.run, and `slots`; but a failure ends the job at once, also one that would pass
    (restart="exponential" tries again, as Job.run does). All jobs of a test have one checkpoint folder, so
    that a second one goes on from the first, unless checkpoint_dir says otherwise.
    """
    from onceflow.testing.background_job import BackgroundJob

    running: list[BackgroundJob] = []

    def start(job: Job, checkpoint_dir: str | None = None, **options: Any) -> BackgroundJob:
        folder = checkpoint_dir or str(tmp_path / "checkpoints")
        running.append(BackgroundJob(job, folder, **options))
        return running[-1]

    yield start
    for job in running:
        job.cancel()
