"""`onceflow query JOB --operator UID --state NAME --key K`: what a job knows of a key, and as of when."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from onceflow.cli.job_folder import folder_of
from onceflow.cli.live_query import ask_live
from onceflow.cli.savepoint_texts import show
from onceflow.cli.state import cell
from onceflow.runtime.clock import SystemClock
from onceflow.runtime.errors import OptionError, UsageError
from onceflow.runtime.state_tables.chosen_keys import key_of_text
from onceflow.runtime.state_tables.client import StateClient
from onceflow.runtime.state_tables.indexed_rows import IndexedRows
from onceflow.runtime.state_tables.printed_values import json_text
from onceflow.runtime.state_tables.reader import read_state

TOKEN = "ONCEFLOW_STATE_TOKEN"

_ANY = ("",)
"""The columns of a key, where the server knows them: a text that is not a JSON object is the value of one."""

app = typer.Typer(help="Ask what a job knows of a key.", add_completion=False)


@app.command()
def query(
    job: Annotated[
        str,
        typer.Argument(
            help="The address of `onceflow serve-state`, a checkpoint folder or savepoint, or the name of "
            "a job that runs on this machine."
        ),
    ],
    operator: Annotated[str, typer.Option("--operator", help="The uid whose state to ask.")],
    state: Annotated[str, typer.Option("--state", help="Which state of it.")],
    key: Annotated[
        list[str],
        typer.Option("--key", help="A key; a JSON object if it has several columns; repeatable."),
    ],
    live: Annotated[
        bool,
        typer.Option(
            "--live",
            help="Ask the job that runs, for what no checkpoint has yet: a restart may take it back.",
        ),
    ] = False,
    as_lines: Annotated[bool, typer.Option("--json", help="Print a JSON object for each key.")] = False,
    token_file: Annotated[
        Path | None,
        typer.Option("--token-file", help=f"A file with the server's token. Default: ${TOKEN}."),
    ] = None,
) -> None:
    """All answers are of one completed checkpoint: the command says which, and how far sources were read.
    With `--live` they are of the job as it runs, and it says on which checkpoint they build."""
    if job.startswith(("http://", "https://")):
        answer = _asked(job, _token(token_file), operator, state, key, live)
    else:
        if token_file is not None:
            raise OptionError(f"--token-file is for a server's address, and {job!r} is none: leave it out")
        folder = folder_of(job)
        answer = (
            ask_live(folder, operator, state, key, are_texts=True)
            if live
            else _read(folder, operator, state, key)
        )
    rows: list[list[dict[str, Any]]] = answer.pop("rows")
    if as_lines:
        for text, found in zip(key, rows, strict=True):
            line = {"key": text, **answer, "rows": found}
            typer.echo(json_text(line))
        return
    _show([row for found in rows for row in found])
    for text, found in zip(key, rows, strict=True):
        if not found:
            typer.echo(f"no rows of {text}")
    typer.echo(_as_of(answer))


def _asked(
    url: str, token: str, operator: str, state: str, keys: Sequence[str], live: bool
) -> dict[str, Any]:
    client = StateClient(url, token)
    try:
        return client.get_many(operator, state, [key_of_text(key, _ANY) for key in keys], live=live)
    finally:
        client.close()


def _read(path: str, operator: str, state: str, keys: Sequence[str]) -> dict[str, Any]:
    with read_state(path) as stored:
        table = stored.table(operator, state)
        where = f"state {table.state!r} of {table.operator!r}"
        if not (columns := table.key_columns).names:
            raise UsageError(f"{where} has no key: use onceflow state")
        wanted = [key_of_text(key, columns.names) for key in keys]
        places, found = IndexedRows(table.read(wanted), columns, where).find(wanted)
        rows: list[list[dict[str, Any]]] = [[] for _ in keys]
        for place, row in zip(places.tolist(), found.to_pylist(), strict=True):
            rows[place].append(row)
        head = {"checkpoint_id": stored.checkpoint_id, "completed_ms": stored.completed_ms}
        return {**head, "offsets": stored.offsets, "rows": rows}


def _token(file: Path | None) -> str:
    if file is None:
        if token := os.environ.get(TOKEN, ""):
            return token
        raise OptionError(f"a server wants its token: give --token-file, or set {TOKEN}")
    try:
        return file.read_text().strip()
    except OSError as error:
        raise OptionError(
            f"--token-file {file} can't be read: {error}: give a file with the token"
        ) from error


def _show(rows: Sequence[dict[str, Any]]) -> None:
    if rows:
        shown = Table(*rows[0])
        for row in rows:
            shown.add_row(*(cell(value) for value in row.values()))
        show(shown)


def _as_of(answer: dict[str, Any]) -> str:
    if answer.get("is_live"):
        last = answer["checkpoint_id"]
        behind = f"checkpoint {last}" if last else "the beginning"
        return f"live, in attempt {answer['attempt']}: not committed; a restart takes it back to {behind}"
    age_s = max(0, SystemClock().now_ms() - answer["completed_ms"]) / 1_000
    read = [
        f"{row['split']} at {row['position'] if row['offset'] is None else row['offset']}"
        for rows in answer["offsets"].values()
        for row in rows
    ]
    offsets = f", with {'; '.join(read)}" if read else ""
    return f"as of checkpoint {answer['checkpoint_id']}, {age_s:.1f} s old{offsets}"
