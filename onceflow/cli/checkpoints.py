"""`onceflow checkpoints DIR`: the checkpoints in a folder, newest last."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from datetime import datetime
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from onceflow.connectors.kafka.held import RestoredOutput
from onceflow.connectors.kafka.promise import Promise
from onceflow.runtime.checkpoint.listing import CheckpointStatus, CheckpointSummary, list_checkpoints
from onceflow.runtime.checkpoint.state_files import AttemptStagedFiles
from onceflow.runtime.checkpoint.store import CheckpointStore
from onceflow.runtime.checkpoint.store_url import open_store
from onceflow.runtime.contracts import Committable

PIPE_WIDTH = 240  # nobody's terminal: nothing is to be cut

app = typer.Typer(help="List the checkpoints in a folder.", add_completion=False)


@app.command()
def checkpoints(
    checkpoint_dir: Annotated[str, typer.Argument(help="The job's checkpoint folder or URL.")],
    verify: Annotated[
        bool, typer.Option("--verify", help="Read every file, not only look whether it is there.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON array.")] = False,
) -> None:
    """Completed ones, damaged ones, those in progress or left behind, and those that can't be read."""
    found = list_checkpoints(open_store(checkpoint_dir), read_staged_output if verify else None)
    if as_json:
        rows = [asdict(c) | {"status": c.status.value, "completed": _is_completed(c)} for c in found]
        typer.echo(json.dumps(rows))
        return
    table = Table("id", "completed at", "duration", "size", "slots", "attempt", "status")
    for checkpoint in found:
        table.add_row(*_cells(checkpoint))
    Console(width=None if sys.stdout.isatty() else PIPE_WIDTH).print(table)


def read_staged_output(store: CheckpointStore, committable: Committable) -> None:
    """See `verification.read_through`. Of a sink that is not ours only the sink can read it."""
    if "ledger_topic" in committable.payload:
        files = AttemptStagedFiles(store, 0, committable.uid, 0)
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
