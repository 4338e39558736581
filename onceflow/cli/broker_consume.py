"""`onceflow broker consume`: the records of a topic, for eyes or as lines."""

from __future__ import annotations

import contextlib
import datetime as dt
import sys
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

import typer
from confluent_kafka import Consumer, KafkaError, TopicPartition
from rich.console import Console
from rich.json import JSON
from rich.markup import escape

from onceflow.cli.broker_options import LOCAL, Config, LocalServers, kafka_options
from onceflow.cli.broker_topics import TIMEOUT_MS, describe_topic
from onceflow.cli.record_lines import UndecodedError, as_json_line, pretty_value, value_text
from onceflow.cli.registry_values import RegistryValues
from onceflow.connectors.kafka.failures import failure
from onceflow.connectors.kafka.options import Isolation, KafkaOptions
from onceflow.connectors.kafka.produce.route import LOG
from onceflow.connectors.kafka.source.start import parse_start
from onceflow.connectors.kafka.starts import AtTime, Earliest, Latest
from onceflow.runtime.errors import OnceflowError, Unavailable, UsageError

Topic = Annotated[str, typer.Argument(metavar="TOPIC")]
Registry = Annotated[
    str | None, typer.Option(help="A schema registry's URL: values are Avro by Confluent's wire format.")
]
Format = Literal["pretty", "json", "values"]
_Start = Earliest | Latest | AtTime


def consume(
    topic: Topic,
    start: Annotated[
        str, typer.Option(help="earliest, latest, or timestamp: with ms or a date and time with zone.")
    ] = "earliest",
    last: Annotated[int | None, typer.Option(min=1, help="Only the last of each partition.")] = None,
    count: Annotated[int | None, typer.Option(min=1, help="End after so many.")] = None,
    follow: Annotated[bool, typer.Option(help="Go on at the end, until Ctrl-C.")] = False,
    partitions: Annotated[
        list[int] | None, typer.Option("--partition", min=0, help="Only this one; repeatable.")
    ] = None,
    isolation: Annotated[str, typer.Option(help="read_committed or read_uncommitted.")] = "read_committed",
    shape: Annotated[
        str | None,
        typer.Option(
            "--format", help="pretty, json (lines) or values. Default: pretty on a terminal, else json."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
    registry: Registry = None,
    bootstrap_servers: LocalServers = LOCAL,
    librdkafka: Config = None,
) -> None:
    """Print the records that are there, or with --follow those that come, too."""
    if isolation not in ("read_committed", "read_uncommitted"):
        raise UsageError(f"--isolation {isolation} must be read_committed or read_uncommitted")
    shape = "json" if as_json else shape or ("pretty" if sys.stdout.isatty() else "json")
    if shape not in ("pretty", "json", "values"):
        raise UsageError(f"--format {shape} must be pretty, json or values")
    begin = _start_of(start)
    options = kafka_options(bootstrap_servers, librdkafka)
    level: Isolation = "read_committed" if isolation == "read_committed" else "read_uncommitted"
    reader = _Reader(options, topic, level, partitions)
    values = RegistryValues(registry, topic) if registry else None
    console, undecoded = Console(), _Undecoded()
    with contextlib.suppress(KeyboardInterrupt, BrokenPipeError), contextlib.closing(reader):
        for number, message in enumerate(reader.records(begin, last, follow), 1):
            try:
                _print(console, message, shape, values)
            except UndecodedError as error:
                undecoded.add(message, error)
                _print(console, message, shape, None, is_undecoded=True)
            if number == count:
                break
    undecoded.tell()


def _start_of(text: str) -> _Start:
    if text in ("earliest", "latest") or text.startswith("timestamp:"):
        start = parse_start(text, None)
        assert isinstance(start, _Start)
        return start
    raise UsageError(f"--start {text} must be earliest, latest or a time, as timestamp:2026-01-31T00:00:00Z")


class _Undecoded:
    """The records that were shown as they are."""

    def __init__(self) -> None:
        self._count = 0
        self._first = ""

    def add(self, message: Any, error: UndecodedError) -> None:
        self._count += 1
        self._first = self._first or f"{message.topic()}-{message.partition()} @ {message.offset()}: {error}"

    def tell(self) -> None:
        """Say at the end how many there are, if there is one."""
        if self._count:
            shown = "values are" if self._count > 1 else "value is"
            typer.echo(f"onceflow: {self._count} {shown} shown undecoded. The first, {self._first}", err=True)


def _print(
    console: Console, message: Any, shape: str, values: RegistryValues | None, is_undecoded: bool = False
) -> None:
    if shape == "json":
        typer.echo(as_json_line(message, values, is_undecoded))
        return
    if shape == "values":
        typer.echo(value_text(message.value(), values, is_undecoded))
        return
    pretty = None if is_undecoded else pretty_value(message.value(), values)
    time = dt.datetime.fromtimestamp(message.timestamp()[1] / 1000, dt.UTC)
    headers = "".join(
        f"  [dim]{escape(name)}=[/dim]{escape(value_text(raw, None))}"
        for name, raw in message.headers() or ()
    )
    key = "" if message.key() is None else f"  [bold]{escape(value_text(message.key(), None))}[/bold]"
    at = f"[cyan]{message.topic()}-{message.partition()}[/cyan] @ {message.offset()}"
    console.print(f"{at}  [dim]{time:%Y-%m-%d %H:%M:%S.%f}"[:-3] + f"Z[/dim]{key}{headers}", highlight=False)
    mark = "[yellow]undecoded:[/yellow] " if is_undecoded else ""
    console.print(JSON(pretty) if pretty is not None else mark + escape(value_text(message.value(), None)))


class _Reader:
    """The records of a topic, from a position to the end or for ever."""

    def __init__(
        self, options: KafkaOptions, topic: str, isolation: Isolation, partitions: list[int] | None
    ) -> None:
        self._cluster, keys = describe_topic(options, topic)
        there = {partition for _, partition in keys}
        for partition in partitions or ():
            if partition not in there:
                raise UsageError(f"{topic} has no partition {partition}: it has {len(there)}, from 0 on")
        self._keys = [key for key in keys if partitions is None or key[1] in partitions]
        self._options, self._topic = options, topic
        self._isolation: Isolation = isolation
        defaults = {"fetch.wait.max.ms": 100}
        self._consumer = Consumer(options.assigned_consumer("onceflow-consume", isolation, defaults, LOG))

    def close(self) -> None:
        self._consumer.close()
        self._cluster.close()

    def records(self, start: _Start, last: int | None, follow: bool) -> Iterator[Any]:
        """Messages, in the order of each partition. Without `follow`: up to the end as it is now."""
        ends = self._cluster.offsets(self._keys, "latest", self._isolation)
        first = self._cluster.offsets(self._keys, "earliest", self._isolation)
        begin = self._begin(start, first, ends)
        if last is not None:
            begin = {key: self._begin_of_last(last, key, first[key], ends[key]) for key in self._keys}
        return self._read(begin, ends, follow)

    def _begin_of_last(self, count: int, key: tuple[str, int], first: int, end: int) -> int:
        """Where the last so many records of a partition begin. Markers of transactions and records that were
        aborted have offsets, too: it is looked back further until there are enough."""
        span = count
        while True:
            begin = max(first, end - span)
            found = deque((each.offset() for each in self._read({key: begin}, {key: end}, False)), count)
            if len(found) == count or begin == first:
                return found[0] if found else end
            span *= 4

    def _read(
        self, begin: Mapping[tuple[str, int], int], ends: Mapping[tuple[str, int], int], follow: bool
    ) -> Iterator[Any]:
        """The messages between these positions; with `follow` for ever."""
        open_ones = {key for key in begin if follow or begin[key] < ends[key]}
        self._consumer.assign([TopicPartition(*key, begin[key]) for key in open_ones])
        idle_s = 0.0
        while open_ones:
            message: Any = self._consumer.poll(0.5)
            idle_s = idle_s + 0.5 if message is None else 0.0
            if message is None:
                if idle_s * 1000 > TIMEOUT_MS and not follow:
                    raise Unavailable(
                        f"Kafka at {self._options.bootstrap_servers} gives no more of {self._topic}"
                    )
                continue
            key = message.topic(), message.partition()
            error = message.error()
            if error is None and (follow or message.offset() < ends[key]):
                yield message
            elif error is not None and error.code() != KafkaError._PARTITION_EOF:
                raise OnceflowError(self._options.redact(str(failure(error, "read", f"topic {self._topic}"))))
            if not follow and (error is not None or message.offset() + 1 >= ends[key]):
                open_ones.discard(key)

    def _begin(self, start: _Start, first: dict[Any, int], ends: dict[Any, int]) -> dict[Any, int]:
        if isinstance(start, Earliest):
            return first
        if isinstance(start, Latest):
            return ends
        found = self._cluster.offsets(self._keys, start.time_ms, self._isolation)
        return {key: ends[key] if offset < 0 else offset for key, offset in found.items()}
