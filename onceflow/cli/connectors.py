"""`onceflow connectors`: the sources, sinks and formats that installed packages offer by name."""

from __future__ import annotations

import json
import sys
from collections import Counter
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from onceflow.runtime.api.named_connectors import KINDS, Offered, offered
from onceflow.runtime.errors import UsageError

PIPE_WIDTH = 240  # nobody's terminal: nothing is to be cut

app = typer.Typer(help="List sources, sinks and formats by name, with their packages.", add_completion=False)


@app.command()
def connectors(
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON array.")] = False,
) -> None:
    """Each is imported, to see whether it can be; the last column says what it needs, or why it can't."""
    rows = [row for kind in KINDS for row in _rows(offered(kind))]
    if as_json:
        typer.echo(json.dumps(rows))
        return
    if not rows:
        typer.echo("no connectors are written down: run `pip install onceflow` again")
        return
    table = Table("kind", "name", "package", "version", "where it is", "can't be used")
    for row in rows:
        table.add_row(*(escape(value or "") for value in row.values()))
    Console(width=None if sys.stdout.isatty() else PIPE_WIDTH).print(table)


def _rows(found: list[Offered]) -> list[dict[str, str | None]]:
    times = Counter(each.name for each in found)
    rows = []
    for each in found:
        problem = "another package has this name too" if times[each.name] > 1 else None
        try:
            each.load()
        except UsageError as error:
            problem = str(error.__cause__ or error)
        if each.needs is not None:
            problem = f"needs {each.needs}"
        rows.append(
            {
                "kind": each.kind.name,
                "name": each.name,
                "package": each.package,
                "version": each.version,
                "place": each.place,
                "problem": problem,
            }
        )
    return rows
