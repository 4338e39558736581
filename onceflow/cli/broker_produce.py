"""`onceflow broker produce`: lines as records of a topic."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import IO, Annotated, Any, Literal

import typer
from confluent_kafka import KafkaError, Producer

from onceflow.cli.broker_options import LOCAL, Config, LocalServers, kafka_options, name_value_pairs
from onceflow.cli.broker_topics import TIMEOUT_MS, describe_topic
from onceflow.cli.record_lines import Line, LineReader
from onceflow.cli.registry_values import LOCAL_REGISTRY, RegistryValues, WrittenBy
from onceflow.connectors.formats.registry.schemas import RegisteredSchema
from onceflow.connectors.kafka.embedded.registry.avro_rules import parsed
from onceflow.connectors.kafka.failures import failure
from onceflow.connectors.kafka.options import KafkaOptions
from onceflow.connectors.kafka.produce.route import LOG
from onceflow.runtime.errors import OnceflowError, OptionError, UsageError

Topic = Annotated[str, typer.Argument(metavar="TOPIC")]
Registry = Annotated[
    str | None, typer.Option(help="A schema registry's URL: values are Avro by Confluent's wire format.")
]
Format = Literal["pretty", "json", "values"]


def produce(
    topic: Topic,
    file: Annotated[Path | None, typer.Argument(metavar="[FILE]", help="Default: standard input.")] = None,
    key: Annotated[str | None, typer.Option(help="The key of every record.")] = None,
    key_field: Annotated[str | None, typer.Option(help="The field of a JSON value that is its key.")] = None,
    key_separator: Annotated[
        str | None, typer.Option(metavar="TEXT", help="What is between key and value on a line.")
    ] = None,
    headers: Annotated[
        list[str] | None,
        typer.Option("--header", metavar="NAME=VALUE", help="A header of every record; repeatable."),
    ] = None,
    partition: Annotated[int | None, typer.Option(min=0, help="Default: by the key, as Java does.")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Lines are what `consume --json` prints: key, value, headers.")
    ] = False,
    registry: Registry = None,
    schema: Annotated[
        Path | None,
        typer.Option(help="A file with an Avro schema: it is registered, and values are Avro by it."),
    ] = None,
    subject: Annotated[
        str | None,
        typer.Option(help="Values are Avro by the latest schema of this subject. Default: TOPIC-value."),
    ] = None,
    bootstrap_servers: LocalServers = LOCAL,
    librdkafka: Config = None,
) -> None:
    """Write each line as a record. Returns when the brokers have all of them."""
    options = kafka_options(bootstrap_servers, librdkafka)
    _, keys = describe_topic(options, topic)
    if partition is not None and (topic, partition) not in keys:
        raise UsageError(f"{topic} has no partition {partition}: it has {len(keys)}, from 0 on")
    values = _values(registry, topic, schema, subject)
    lines = LineReader(
        key, key_field, key_separator, name_value_pairs(headers or [], "--header"), as_json, values
    )
    given = _opened(file) if file else sys.stdin.buffer
    if file is None and sys.stdin.isatty():
        typer.echo("one record a line; Ctrl-D ends", err=True)
    writer = _Writer(options, topic, partition)
    try:
        for number, text in enumerate(given, 1):
            writer.write(number, lines.read(number, text))
    except UsageError as error:
        writer.finish()
        raise UsageError(f"{error}; the {writer.written} records before it are written") from error
    except KeyboardInterrupt:
        pass
    writer.finish()
    typer.echo(f"{topic}: {writer.written} records written", err=True)


def _values(
    registry: str | None, topic: str, schema: Path | None, subject: str | None
) -> RegistryValues | None:
    """How values are written, if not as they are. Who names a schema and no registry means the local one."""
    if registry is None and schema is None and subject is None:
        return None
    text = None
    if schema is not None:
        with _opened(schema) as file:
            text = file.read().decode(errors="replace")
        try:
            parsed(RegisteredSchema("AVRO", text))
        except OptionError as error:
            raise UsageError(f"--schema {schema}: {error}") from error
    return RegistryValues(registry or LOCAL_REGISTRY, topic, WrittenBy(text, subject))


def _opened(file: Path) -> IO[bytes]:
    try:
        return file.open("rb")
    except OSError as error:
        raise UsageError(f"{file} can't be read: {error.strerror}") from None


class _Writer:
    """Hands records to librdkafka and knows which of them the brokers have."""

    def __init__(self, options: KafkaOptions, topic: str, partition: int | None) -> None:
        ours: dict[str, Any] = {
            "enable.idempotence": True,
            "partitioner": "murmur2_random",
            "message.timeout.ms": 4 * TIMEOUT_MS,
            "logger": LOG,
        }
        self._options, self._topic = options, topic
        self._where = {} if partition is None else {"partition": partition}
        self._producer = Producer(options.producer(ours, {"linger.ms": 20}))
        self._failed: tuple[int, KafkaError] | None = None
        self.written = 0

    def write(self, number: int, line: Line) -> None:
        """Send a record; `number` is its line, for the sentence if it fails."""

        def delivered(error: KafkaError | None, _message: Any) -> None:
            if error is None:
                self.written += 1
            elif self._failed is None:
                self._failed = number, error

        given: dict[str, Any] = {**self._where, "headers": line.headers, "on_delivery": delivered}
        if line.timestamp_ms is not None:
            given["timestamp"] = line.timestamp_ms
        while True:
            try:
                self._producer.produce(self._topic, line.value, line.key, **given)
            except BufferError:
                self._producer.poll(1)
                continue
            self._producer.poll(0)
            return

    def finish(self) -> None:
        """Wait until each record is written or failed. Raises OnceflowError naming the first that failed."""
        self._producer.flush()
        if self._failed is not None:
            number, cause = self._failed
            said = failure(cause, f"write line {number}", f"topic {self._topic}")
            raise OnceflowError(self._options.redact(f"{said}; {self.written} records are written"))
