"""`onceflow checkpoints JOB`: the checkpoints in a folder, newest last."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from onceflow.cli.job_folder import JobFolder
from onceflow.connectors.kafka.transactions.held import RestoredOutput
from onceflow.connectors.kafka.transactions.promise import Promise
from onceflow.connectors.staged_rows import are_row_files, row_files
from onceflow.runtime.checkpoint.listing import CheckpointStatus, CheckpointSummary, list_checkpoints
from onceflow.runtime.checkpoint.reading import StateTable, StoredCheckpoint, open_checkpoint
from onceflow.runtime.checkpoint.staged_files import AttemptStagedFiles
from onceflow.runtime.checkpoint.store import CheckpointStore
from onceflow.runtime.checkpoint.store_url import open_store
from onceflow.runtime.checkpoint.verification import OnHealed
from onceflow.runtime.contracts import Committable
from onceflow.runtime.state.description import StateDescription, StatePart, Windows

PIPE_WIDTH = 240  # nobody's terminal: nothing is to be cut
_WAY_OUT_OF_COPIES = (
    "a file that is read from its copy has no second one left: look at the disk, put the copy, which is below"
    " `copies/` under the same path, in the file's place, and keep a savepoint on another disk (`onceflow "
    "savepoint DIR TARGET`)"
)

app = typer.Typer(help="List the checkpoints in a folder.", add_completion=False)


@app.command()
def checkpoints(
    checkpoint_dir: JobFolder,
    verify: Annotated[
        bool, typer.Option("--verify", help="Read every file, not only look whether it is there.")
    ] = False,
    state: Annotated[
        bool, typer.Option("--state", help="What state is in the newest completed one, by operator.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON array.")] = False,
) -> None:
    """Completed ones, damaged ones, those in progress or left behind, and those that can't be read."""
    if state:
        _show_state(open_checkpoint(checkpoint_dir), as_json)
        return
    found = list_checkpoints(open_store(checkpoint_dir), read_staged_output if verify else None)
    if any(_is_completed(each) and each.problem for each in found):
        typer.echo(_WAY_OUT_OF_COPIES, err=True)
    if as_json:
        rows = [asdict(c) | {"status": c.status.value, "completed": _is_completed(c)} for c in found]
        typer.echo(json.dumps(rows))
        return
    table = Table("id", "completed at", "duration", "size", "slots", "attempt", "status")
    for checkpoint in found:
        table.add_row(*_cells(checkpoint))
    Console(width=None if sys.stdout.isatty() else PIPE_WIDTH).print(table)


def _show_state(checkpoint: StoredCheckpoint, as_json: bool) -> None:
    if as_json:
        described = [
            {
                "uid": t.uid,
                "table": t.name,
                "rows": t.rows,
                "size_bytes": t.size_bytes,
                "description": msgspec.to_builtins(t.description),
            }
            for t in checkpoint.tables
        ]
        typer.echo(json.dumps(described))
        return
    table = described_state(checkpoint.tables, f"checkpoint {checkpoint.checkpoint_id}")
    Console(width=None if sys.stdout.isatty() else PIPE_WIDTH).print(table)


def described_state(tables: Sequence[StateTable], title: str) -> Table:
    """What state there is, by operator, for people."""
    table = Table("uid", "state", "key", "of", "rows", "size", title=title)
    for t in tables:
        table.add_row(t.uid, *described_cells(t.description), f"{t.rows:,}", f"{t.size_bytes:,} B")
    return table


def described_cells(state: StateDescription | None) -> tuple[str, str, str]:
    """The cells for a state: its kind, its key, its parts."""
    if state is None:
        return "not described", "-", "-"
    kind = state.kind
    if state.windows is not None:
        kind += f", {_windows(state.windows)}"
    keys = ", ".join(f"{key.name} {key.type}" for key in state.keys)
    return kind, keys, "\n".join(map(_part, state.parts))


def _windows(windows: Windows) -> str:
    """`sliding 10,000 ms every 5,000 ms`."""
    again = f", {windows.lateness_ms:,} ms of lateness" if windows.lateness_ms else ""
    if windows.kind == "session" and not windows.size_ms:
        by = windows.function or (windows.gap_column if windows.gap is None else windows.gap.text)
        return f"session, gap by {by}{again}"
    if windows.kind == "count":
        return f"{windows.size_ms:,} rows"
    again += ", by the clock" if windows.is_by_clock else ""
    every = f" every {windows.slide_ms:,} ms" if windows.kind in ("sliding", "cumulative") else ""
    return f"{windows.kind} {windows.size_ms:,} ms{every}{again}"


def _part(part: StatePart) -> str:
    """`total=sum_('amount') int64`."""
    return escape(f"{part.name}={kind_text(part)} {part.type}")


def kind_text(part: StatePart) -> str:
    """`sum_('amount')`, `value`."""
    argument = repr(part.column) if part.column else part.function
    if part.expression is not None:
        argument = part.expression.text
    return f"{part.kind}({argument})" if argument else part.kind


def read_staged_output(store: CheckpointStore, committable: Committable, on_healed: OnHealed) -> None:
    """See `verification.ReadOutput`. Of a sink that is not ours only the sink can read it."""

    def said(problem: str) -> None:
        on_healed(f"operator {committable.uid!r}: {problem}")

    files = AttemptStagedFiles(store, 0, committable.uid, 0, said)
    if are_row_files(committable):
        for file in row_files(committable):
            file.check(files)
    elif "ledger_topic" in committable.payload:
        for output in Promise.of(committable).outputs:
            next(RestoredOutput(output, files).batches(), None)  # the whole file is read before the first


def _is_completed(checkpoint: CheckpointSummary) -> bool:
    return checkpoint.status is CheckpointStatus.COMPLETED


def _cells(checkpoint: CheckpointSummary) -> list[str]:
    at = checkpoint.completed_ms
    colour = {"completed": "green", "incomplete": "yellow"}.get(checkpoint.status.value, "red")
    status = f"[{colour}]{checkpoint.status.value}[/{colour}]"
    if checkpoint.is_last:
        status += " (last)"
    return [
        _text(checkpoint.checkpoint_id),
        "-" if at is None else f"{datetime.fromtimestamp(at / 1000):%Y-%m-%d %H:%M:%S}",
        "-" if checkpoint.duration_ms is None else f"{checkpoint.duration_ms:,} ms",
        "-" if checkpoint.total_bytes is None else f"{checkpoint.total_bytes:,} B",
        _text(checkpoint.parallelism),
        _text(checkpoint.attempt),
        f"{status} {checkpoint.problem}".strip(),
    ]


def _text(value: int | None) -> str:
    return "-" if value is None else str(value)
