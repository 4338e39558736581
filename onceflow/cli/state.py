"""`onceflow state PATH`: a job's state as tables, of a checkpoint folder or a savepoint."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import islice
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from onceflow.cli.savepoint_texts import show
from onceflow.runtime.errors import UsageError
from onceflow.runtime.state_tables.chosen_keys import key_of_text
from onceflow.runtime.state_tables.printed_values import json_text
from onceflow.runtime.state_tables.reader import StoredState, StoredTable, read_state

TERMINAL_ROWS = 100

app = typer.Typer(help="Print a job's state as tables.", add_completion=False)


@app.command()
def state(
    path: Annotated[str, typer.Argument(help="A checkpoint folder or a savepoint, or its URL.")],
    operator: Annotated[
        str | None, typer.Option("--operator", help="The uid whose state to print. Default: list all.")
    ] = None,
    name: Annotated[
        str | None, typer.Option("--state", help="Which state of it, if there are several.")
    ] = None,
    key: Annotated[
        list[str] | None,
        typer.Option("--key", help="Only this key; a JSON object if it has several columns; repeatable."),
    ] = None,
    checkpoint: Annotated[
        int | None, typer.Option("--checkpoint", metavar="ID", help="Default: the newest.")
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit",
            metavar="N",
            min=0,
            help=f"At most so many rows. Default: {TERMINAL_ROWS} on a terminal.",
        ),
    ] = None,
) -> None:
    """A table on a terminal, else one JSON object per line. The job may run meanwhile."""
    if operator is None and (name is not None or key):
        raise UsageError("--state and --key are of one operator: use --operator UID")
    is_terminal = sys.stdout.isatty()
    if limit is None and is_terminal:
        limit = TERMINAL_ROWS
    with read_state(path, checkpoint) as stored:
        if operator is None:
            rows, columns = _listed(stored), ["operator", "state", "kind", "stored_rows", "schema"]
        else:
            table = stored.table(operator, name)
            rows, columns = _rows(table, key), table.schema.names
        found = islice(rows, limit)
        if is_terminal:
            _show(columns, found, f"{stored.job}, checkpoint {stored.checkpoint_id}")
            return
        for row in found:
            typer.echo(json_text(row))


def _listed(stored: StoredState) -> Iterator[dict[str, Any]]:
    for table in stored.tables:
        schema = ", ".join(f"{field.name} {field.type}" for field in table.schema)
        yield {
            "operator": table.operator,
            "state": table.state,
            "kind": table.kind,
            "stored_rows": table.stored_rows,
            "schema": schema,
        }


def _rows(table: StoredTable, keys: list[str] | None) -> Iterator[dict[str, Any]]:
    chosen = [key_of_text(key, table.key_columns.names) for key in keys] if keys else None
    for batch in table.batches(chosen):
        yield from batch.to_pylist()


def _show(columns: list[str], rows: Iterator[dict[str, Any]], title: str) -> None:
    shown = Table(*map(escape, columns), title=escape(title))
    for row in rows:
        shown.add_row(*(escape(cell(row[column])) for column in columns))
    show(shown)


def cell(value: Any) -> str:
    """A value as a table shows it."""
    return value if isinstance(value, str) else json_text(value)
