"""`onceflow verify`: the auditor. Judges an output topic from outside, by what its readers see.

Three questions: is a key doubled or a number skipped (--key, --sequence); is each key of the input in
the output as often (--input, --key); are the totals of each group and window right (--input,
--group-by, --time, --window and the totals). Exit code 0: nothing wrong; 1: something is; 2: wrong use.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import polars as pl
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

from onceflow.cli.audit import (
    Aggregate,
    Columns,
    Findings,
    RawRecords,
    Totals,
    WindowedTotals,
    compare,
    compare_keys,
    find_doubled,
    find_gaps,
)
from onceflow.cli.audit_topics import TopicReader
from onceflow.cli.broker_options import LOCAL, Config, LocalServers, file_settings
from onceflow.cli.registry_values import RegistryValues
from onceflow.runtime.errors import UsageError

app = typer.Typer(add_completion=False)

_UNITS_MS = {"ms": 1, "s": 1000, "min": 60_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


@app.command()
def verify(
    output: Annotated[str, typer.Option(help="The topic to judge.")],
    bootstrap_servers: LocalServers = LOCAL,
    input_topic: Annotated[str | None, typer.Option("--input", help="The topic it was made from.")] = None,
    key: Annotated[
        list[str] | None, typer.Option(help="A field that identifies a record; repeatable.")
    ] = None,
    sequence: Annotated[str | None, typer.Option(help="A number without gaps, for each --key.")] = None,
    group_by: Annotated[list[str] | None, typer.Option(help="What the totals are by; repeatable.")] = None,
    time: Annotated[str, typer.Option(help="The input's field for the event time, in ms.")] = "ts",
    window: Annotated[str | None, typer.Option(help="Length of the tumbling windows, as in '10 s'.")] = None,
    window_end: Annotated[str, typer.Option(help="The output's field for the window's end.")] = "window_end",
    count: Annotated[str | None, typer.Option(help="The output's field for the count.")] = None,
    sum_: Annotated[list[str] | None, typer.Option("--sum", metavar="OUTPUT=INPUT")] = None,
    min_: Annotated[list[str] | None, typer.Option("--min", metavar="OUTPUT=INPUT")] = None,
    max_: Annotated[list[str] | None, typer.Option("--max", metavar="OUTPUT=INPUT")] = None,
    until_ms: Annotated[int | None, typer.Option(help="Judge only windows that end by then.")] = None,
    librdkafka: Config = None,
    registry: Annotated[
        str | None,
        typer.Option(
            help="A schema registry's URL: values in Avro by Confluent's wire format are judged, too."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Audit an output topic: gaps, duplicates, or wrong window totals."""
    totals = None
    if group_by or window:
        fields = _aggregates(count, {"sum": sum_ or [], "min": min_ or [], "max": max_ or []})
        if not (group_by and window and input_topic and fields):
            raise UsageError("totals need --input, --group-by, --window and at least one of --count, --sum")
        length_ms = _duration_ms(window)
        totals = WindowedTotals(tuple(group_by), time, length_ms, window_end, fields, until_ms)
    elif not key and not sequence:
        raise UsageError("nothing to judge by: give --key or --sequence, or --group-by with --window")
    values = RegistryValues(registry, output) if registry else None
    reader = TopicReader(bootstrap_servers, file_settings(librdkafka), values=values)
    with contextlib.closing(reader):
        audit = Audit(reader)
        if totals is not None and input_topic is not None:
            audit.totals(input_topic, output, totals)
        elif input_topic is not None:
            audit.copies(input_topic, output, key or [])
        else:
            audit.alone(output, key or [], sequence)
        held = [transaction.as_json() for transaction in reader.open_transactions(output)]
    _report(audit, held, as_json)
    raise typer.Exit(0 if audit.findings.is_clean and not audit.is_empty else 1)


class Audit:
    """Reads the topics, hands them to the judgement, and counts what was read."""

    def __init__(self, reader: TopicReader) -> None:
        self._reader = reader
        self.findings = Findings()
        self.input_records = 0
        self.output_records = 0

    @property
    def is_empty(self) -> bool:
        """Whether there was nothing to judge: a job that has not run looks like one that is right."""
        return not self.input_records and not self.output_records

    def totals(self, input_topic: str, output: str, spec: WindowedTotals) -> None:
        totals = Totals(spec, self.findings)
        for raw in self._chunks(input_topic):
            totals.add(raw)
            self.input_records += len(raw.values)
        found = self._output(
            output, Columns(spec.group_by, [a.field for a in spec.aggregates], [spec.window_end])
        )
        compare(totals.expected(), found, spec, self.findings)

    def copies(self, input_topic: str, output: str, key: Sequence[str]) -> None:
        columns = Columns(key, [], [])
        frames = [columns.frame(raw, self.findings) for raw in self._chunks(input_topic)]
        source = pl.concat([columns.empty(), *frames], how="vertical_relaxed")
        self.input_records = len(source)
        compare_keys(source, self._output(output, columns), key, self.findings)

    def alone(self, output: str, key: Sequence[str], sequence: str | None) -> None:
        numbers = [sequence] if sequence is not None else []
        found = self._output(output, Columns(key, [], numbers))
        find_doubled(found, [*key, *numbers], self.findings)
        if sequence is not None:
            find_gaps(found, key, sequence, self.findings)

    def _output(self, topic: str, columns: Columns) -> pl.DataFrame:
        frames = [columns.empty()]
        for raw in self._chunks(topic):
            frames.append(columns.frame(raw, self.findings))
            self.output_records += len(raw.values)
        return pl.concat(frames, how="vertical_relaxed")

    def _chunks(self, topic: str) -> Iterator[RawRecords]:
        bar = TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn()
        with Progress(*bar, console=Console(stderr=True), transient=True) as progress:
            task = progress.add_task(f"reading {topic}", total=None)
            yield from self._reader.chunks(
                topic, lambda done, total: progress.update(task, completed=done, total=total)
            )


def _aggregates(count: str | None, pairs: dict[str, list[str]]) -> tuple[Aggregate, ...]:
    fields = [Aggregate(count, "count")] if count else []
    for function, named in pairs.items():
        for pair in named:
            output, _, source = pair.partition("=")
            fields.append(Aggregate(output, function, source or output))
    return tuple(fields)


def _duration_ms(text: str) -> int:
    match = re.fullmatch(r"\s*(\d+)\s*(ms|s|min|m|h|d)\s*", text)
    if match is None or int(match[1]) == 0:
        raise UsageError(
            f"--window {text!r} is no length: write a number and ms, s, min, h or d, as in '10 s'"
        )
    return int(match[1]) * _UNITS_MS[match[2]]


def _report(audit: Audit, held: list[dict[str, Any]], as_json: bool) -> None:
    findings = audit.findings
    counts = {kind: getattr(findings, kind) for kind in ("missing", "doubled", "wrong", "unreadable")}
    if as_json:
        sizes = {"input_records": audit.input_records, "output_records": audit.output_records}
        report = {"clean": findings.is_clean and not audit.is_empty, **sizes, **counts}
        samples = {kind: rows for kind, rows in findings.samples.items() if rows}
        typer.echo(json.dumps({**report, "samples": samples, "open_transactions": held}, default=str))
        return
    console = Console()
    table = Table("", "rows", "for example")
    for kind, number in counts.items():
        table.add_row(
            kind, str(number), "\n".join(json.dumps(r, default=str) for r in findings.samples.get(kind, []))
        )
    console.print(f"read {audit.input_records:,} input and {audit.output_records:,} output records")
    console.print(table)
    for transaction in held:
        owner = transaction["transactional_id"] or f"producer {transaction['producer_id']}"
        where = f"{transaction['topic']}-{transaction['partition']} from {transaction['first_offset']} on"
        console.print(
            f"held back: {transaction['held_back']} offsets of {where}, by the transaction of {owner}"
        )
    console.print(_verdict(audit))


def _verdict(audit: Audit) -> str:
    findings = audit.findings
    if audit.is_empty:
        return "nothing was judged: there are no records"
    if findings.is_clean:
        return "nothing missing, doubled or wrong"
    if not (findings.missing or findings.doubled or findings.wrong):
        return (
            f"{findings.unreadable} records could not be judged: their values have to be objects in JSON, "
            "or in Avro with --registry"
        )
    return "the output is NOT right"
