"""`onceflow transactions list|repair|abort|ledger`: transactions that hold readers back."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Annotated, TypeVar

import typer
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from rich.console import Console
from rich.table import Table
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_exponential

from onceflow.cli.broker_options import Config, kafka_options
from onceflow.connectors.kafka.client import LedgerKey
from onceflow.connectors.kafka.failures import failure
from onceflow.connectors.kafka.options import KafkaOptions
from onceflow.connectors.kafka.produce.route import LOG
from onceflow.connectors.kafka.transactions.hanging import HangingTransaction, TransactionDoctor
from onceflow.connectors.kafka.transactions.librdkafka_client import LibrdkafkaClient
from onceflow.connectors.kafka.transactions.producer_settings import ProducerSettings
from onceflow.connectors.kafka.transactions.sink_topics import LEDGER_TOPIC
from onceflow.runtime.errors import Retryable, UsageError

app = typer.Typer(
    help="Transactions that hold readers back: find them, end them.",
    add_completion=False,
    no_args_is_help=True,
)

Answer = TypeVar("Answer")

_PATIENCE_S = 30.0

Servers = Annotated[str, typer.Option("--bootstrap-servers", help="The brokers, as in host:9092.")]
Topics = Annotated[list[str] | None, typer.Option("--topic", help="An output topic; may be repeated.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command("list")
def list_transactions(
    bootstrap_servers: Servers, topic: Topics = None, librdkafka: Config = None, as_json: AsJson = False
) -> None:
    """Open transactions, and hanging ones: those that only `repair` can end."""
    with TransactionDoctor(kafka_options(bootstrap_servers, librdkafka)) as doctor:
        open_ones, hanging = doctor.open_transactions(), doctor.hanging(topic or [])
    if as_json:
        rows = {"open": [asdict(t) for t in open_ones], "hanging": [asdict(t) for t in hanging]}
        typer.echo(json.dumps(rows))
        return
    now_ms = time.time() * 1000
    table = Table("transactional id", "producer", "state", "age", "partitions")
    for found in open_ones:
        age = f"{(now_ms - found.started_ms) / 1000:.0f} s"
        table.add_row(
            found.transactional_id, str(found.producer_id), found.state, age, " ".join(found.partitions)
        )
    for stuck in hanging:
        at = " ".join(f"{p.topic}-{p.partition}" for p in stuck.stuck)
        table.add_row(stuck.transactional_id or "?", str(stuck.producer_id), "[red]hanging[/red]", "-", at)
    Console().print(table)


@app.command()
def repair(
    bootstrap_servers: Servers,
    topic: Topics = None,
    outcome: Annotated[str | None, typer.Option("--as", help="commit or abort; else as recorded.")] = None,
    librdkafka: Config = None,
    as_json: AsJson = False,
) -> None:
    """End hanging transactions by writing the markers that the broker lost. Leaves live ones alone."""
    if outcome not in (None, "commit", "abort"):
        raise UsageError(f"--as {outcome} must be commit or abort")
    with TransactionDoctor(kafka_options(bootstrap_servers, librdkafka)) as doctor:
        chosen = [(found, doctor.choose_outcome(found, outcome)) for found in doctor.hanging(topic or [])]
        for found, how in chosen:
            doctor.repair(found, how)
    if as_json:
        typer.echo(json.dumps([{**asdict(found), "repaired_as": how} for found, how in chosen]))
        return
    typer.echo("no transaction hangs" if not chosen else "\n".join(_repaired(f, how) for f, how in chosen))


@app.command()
def abort(transactional_id: str, bootstrap_servers: Servers, librdkafka: Config = None) -> None:
    """End an open transaction whose job is gone, by fencing its writer, which notices if it lives."""
    # Never by markers: while it is ongoing the writer's commit would say OK and its records be lost.
    client = LibrdkafkaClient(kafka_options(bootstrap_servers, librdkafka), ProducerSettings())
    with contextlib.closing(client):
        _patiently(lambda: client.open_producer(LedgerKey(transactional_id, LEDGER_TOPIC)).discard())
    typer.echo(f"{transactional_id}: its writer is fenced; what it had open is aborted")


@app.command()
def ledger(
    transactional_id: str,
    bootstrap_servers: Servers,
    set_to: Annotated[int | None, typer.Option("--set", min=0, help="The checkpoint id to put.")] = None,
    ledger_topic: Annotated[str, typer.Option("--ledger-topic")] = LEDGER_TOPIC,
    librdkafka: Config = None,
) -> None:
    """Show the ledger of one sink subtask, or put it to a checkpoint id while the job is stopped."""
    options = kafka_options(bootstrap_servers, librdkafka)
    key = LedgerKey(transactional_id, ledger_topic)
    with contextlib.closing(LibrdkafkaClient(options, ProducerSettings())) as client:
        if set_to is not None:
            _patiently(lambda: client.ensure_ledger_topic(ledger_topic))
            _patiently(lambda: _put_ledger(options, key, set_to))
        entry = _patiently(lambda: client.newest_ledger(key))
    typer.echo(f"{transactional_id}: {'never written, or gone' if entry is None else entry.checkpoint_id}")


def _put_ledger(options: KafkaOptions, key: LedgerKey, value: int) -> None:
    position = TopicPartition(key.topic, 0, value)
    wanted = ConsumerGroupTopicPartitions(key.transactional_id, [position])
    admin = AdminClient(options.admin({"logger": LOG}))  # kept: with it would go its question
    try:
        admin.alter_consumer_group_offsets([wanted])[key.transactional_id].result()
    except KafkaException as e:
        explained = failure(e.args[0], "set the ledger", f"Group {key.transactional_id}")
        raise type(explained)(options.redact(str(explained))) from e


def _patiently(question: Callable[[], Answer]) -> Answer:
    """Ask again while it may succeed: the broker that would have to answer may have just died."""
    again = Retrying(
        retry=retry_if_exception_type(Retryable),
        stop=stop_after_delay(_PATIENCE_S),
        wait=wait_exponential(0.05, max=1),
        reraise=True,
    )
    return again(question)


def _repaired(found: HangingTransaction, how: str) -> str:
    at = ", ".join(f"{p.topic}-{p.partition}" for p in found.stuck)
    done = {"commit": "committed", "abort": "aborted"}[how]
    return f"{found.transactional_id or found.producer_id}: {done} in {at}"
