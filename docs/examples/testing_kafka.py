"""A test on a real Kafka: the fixtures come with onceflow, pytest finds them by itself."""

from collections.abc import Callable

from onceflow import Job
from onceflow.connectors.formats import Text
from onceflow.connectors.kafka import KafkaSource
from onceflow.sinks.kafka import KafkaSink
from onceflow.testing import BackgroundJob, Topic


def copy(bootstrap_servers: str, source: str, target: str) -> Job:
    job = Job("copy")
    lines = job.source(
        KafkaSource(
            bootstrap_servers=bootstrap_servers,
            topics=[source],
            value=Text(),
            until="latest",
        ),
        uid="in",
    )
    lines.sink_to(
        KafkaSink(bootstrap_servers=bootstrap_servers, topic=target, value=Text()),
        uid="out",
    )
    return job


def test_copy(
    onceflow_broker: str,
    topic: Callable[..., Topic],
    run_job: Callable[..., BackgroundJob],
) -> None:
    source, target = topic("source"), topic("target")
    source.produce("one", "two")
    run_job(copy(onceflow_broker, source.name, target.name)).wait()
    assert target.records(2) == ["one", "two"]


job = copy("localhost:9092", "source", "target")
