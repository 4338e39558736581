"""`onceflow broker topics|create`: what topics there are, and new ones."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from rich.table import Table

from onceflow.cli.broker_options import LOCAL, Config, LocalServers, kafka_options, name_value_pairs
from onceflow.connectors.kafka.failures import failure
from onceflow.connectors.kafka.metadata import ClusterMetadata
from onceflow.connectors.kafka.options import KafkaOptions
from onceflow.connectors.kafka.produce.route import LOG
from onceflow.runtime.clock import SystemClock
from onceflow.runtime.errors import OnceflowError, Unavailable, UsageError
from onceflow.runtime.nearest import nearest

TIMEOUT_MS = 15_000
"""How long a cluster is waited for by a command that somebody sits in front of."""

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def topics(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[TOPIC]...", help="Those only, partition by partition.")
    ] = None,
    bootstrap_servers: LocalServers = LOCAL,
    librdkafka: Config = None,
    as_json: AsJson = False,
) -> None:
    """List topics, with the number of offsets that each holds."""
    cluster = ClusterMetadata(kafka_options(bootstrap_servers, librdkafka), SystemClock(), TIMEOUT_MS)
    there = topics_there(cluster, bootstrap_servers)
    require_topics(names or [], there, bootstrap_servers)
    keys = [key for topic in cluster.describe(names or there).values() for key in topic.keys]
    first = cluster.offsets(keys, "earliest", "read_uncommitted")
    ends = cluster.offsets(keys, "latest", "read_uncommitted")
    rows = [
        {
            "topic": topic,
            "partition": partition,
            "first": first[topic, partition],
            "end": ends[topic, partition],
        }
        for topic, partition in sorted(keys)
    ]
    if as_json:
        typer.echo(json.dumps(rows))
    elif not rows:
        typer.echo(f"Kafka at {bootstrap_servers} has no topics: make one with onceflow broker create NAME")
    else:
        Console().print(_by_partition(rows) if names else _by_topic(rows))


def create(
    names: Annotated[list[str], typer.Argument(metavar="TOPIC...")],
    partitions: Annotated[int, typer.Option(min=1, help="Partitions of each.")] = 1,
    replication: Annotated[
        int | None, typer.Option(min=1, help="Copies of each partition. Default: as the brokers say.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A setting of the topics; repeatable."),
    ] = None,
    if_missing: Annotated[bool, typer.Option("--if-missing", help="Leave those alone that exist.")] = False,
    bootstrap_servers: LocalServers = LOCAL,
    librdkafka: Config = None,
) -> None:
    """Make topics. Exit code 1 if one exists, unless --if-missing."""
    options = kafka_options(bootstrap_servers, librdkafka)
    config = name_value_pairs(settings or [], "--set")
    topics_there(ClusterMetadata(options, SystemClock(), TIMEOUT_MS), bootstrap_servers)
    wanted = [NewTopic(name, partitions, replication or -1, config=config) for name in names]
    admin = AdminClient(options.admin({"logger": LOG}))  # kept: with it would go its questions
    futures = admin.create_topics(wanted, request_timeout=TIMEOUT_MS / 1000)
    for name, future in futures.items():
        made = _is_made(options, name, future, if_missing)
        typer.echo(f"{name}: {f'made, partitions: {partitions}' if made else 'exists'}")


def describe_topic(options: KafkaOptions, topic: str) -> tuple[ClusterMetadata, list[tuple[str, int]]]:
    """The partitions of a topic, and who answers more of the cluster. Raises UsageError if there is none."""
    cluster = ClusterMetadata(options, SystemClock(), TIMEOUT_MS)
    with hint_at_our_own(options.bootstrap_servers):
        described = cluster.describe([topic])
    if topic not in described:
        require_topics([topic], cluster.topic_names(), options.bootstrap_servers)
    return cluster, described[topic].keys


def topics_there(cluster: ClusterMetadata, bootstrap_servers: str) -> list[str]:
    """The topics of the cluster. Raises Unavailable if nobody answers."""
    with hint_at_our_own(bootstrap_servers):
        return cluster.topic_names()


@contextmanager
def hint_at_our_own(bootstrap_servers: str) -> Iterator[None]:
    """Where nobody answers on this machine, say how to start a Kafka there."""
    try:
        yield
    except Unavailable as error:
        if bootstrap_servers.partition(":")[0] not in ("127.0.0.1", "localhost"):
            raise
        raise Unavailable(f"{error}. `onceflow broker start` starts a Kafka on this machine") from error


def require_topics(names: list[str], there: list[str], bootstrap_servers: str) -> None:
    """Raises UsageError naming the topic that does not exist, and the nearest one that does."""
    for name in names:
        if name not in there:
            raise UsageError(
                f"Kafka at {bootstrap_servers} has no topic {name}{nearest(name, there)}: "
                f"make it with onceflow broker create {name}"
            )


def _is_made(options: KafkaOptions, name: str, future: Any, if_missing: bool) -> bool:
    try:
        future.result()
    except KafkaException as error:
        cause = error.args[0]
        if cause.code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise OnceflowError(options.redact(str(failure(cause, "make it", f"topic {name}")))) from error
        if not if_missing:
            raise OnceflowError(
                f"topic {name} exists: give another name, or --if-missing to leave it as it is"
            ) from error
        return False
    return True


def _by_topic(rows: list[dict[str, Any]]) -> Table:
    table = Table("topic", "partitions", "offsets")
    for topic in dict.fromkeys(row["topic"] for row in rows):
        its = [row for row in rows if row["topic"] == topic]
        table.add_row(topic, str(len(its)), str(sum(row["end"] - row["first"] for row in its)))
    return table


def _by_partition(rows: list[dict[str, Any]]) -> Table:
    table = Table("topic", "partition", "first offset", "end")
    for row in rows:
        table.add_row(*(str(value) for value in row.values()))
    return table
