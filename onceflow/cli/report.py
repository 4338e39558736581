"""Reporters: JSON lines for scripts, a live line for people.

Every line of `--json` is an object with `event` and `ts_ms` (wall clock); docs/events.md lists them.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, TextIO

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from onceflow.runtime.records import WATERMARK_MAX_MS
from onceflow.runtime.report import JobProgress, Reporter


def reporter_for(as_json: bool) -> Reporter:
    """JSON lines if asked for or if nobody watches; else the live line."""
    if as_json or not sys.stdout.isatty():
        return JsonLines(sys.stdout)
    return LiveLine(Console())


class JsonLines:
    """One JSON object per line, flushed at once."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._first_seen: set[int] = set()

    def event(self, name: str, fields: Mapping[str, Any]) -> None:
        line = {"event": name, "ts_ms": time.time_ns() // 1_000_000, **fields}
        self._stream.write(json.dumps(line) + "\n")
        self._stream.flush()

    def progress(self, progress: JobProgress) -> None:
        fields = asdict(progress)
        for name in ("records_in_per_s", "records_out_per_s"):
            fields[name] = round(fields[name])
        self.event("progress", fields)

    def close(self) -> None:
        """Standard output is not ours to close."""


class LiveLine:
    """One line that is drawn anew each second; what happens scrolls by above it."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._live.start()

    def event(self, name: str, fields: Mapping[str, Any]) -> None:
        text = _EVENT_LINES.get(name, lambda _: None)(fields)
        if text is not None:
            self._live.console.print(Text.from_markup(f"[dim]{datetime.now():%H:%M:%S}[/dim] {text}"))

    def progress(self, progress: JobProgress) -> None:
        self._live.update(_line(progress), refresh=True)

    def close(self) -> None:
        self._live.stop()


def _started(fields: Mapping[str, Any]) -> str:
    slots = ", ".join(f"{slot['slot']} = pid {slot['pid']}" for slot in fields["slots"])
    return f"attempt {fields['attempt']}: slots {slots}"


def _finished(fields: Mapping[str, Any]) -> str:
    colour = "green" if fields["outcome"] in ("finished", "stopped") else "red"
    late = f"; [yellow]{fields['late_records']:,} late records[/yellow]" if fields["late_records"] else ""
    return (
        f"[{colour}]{fields['outcome']}[/{colour}]: {fields['reason']}; "
        f"last checkpoint {fields['last_checkpoint_id']}{late}"
    )


_EVENT_LINES = {
    "slots_started": _started,
    "attempt_failed": lambda f: f"[red]attempt {f['attempt']} failed[/red]: {f['reason']}",
    "restarted": lambda f: f"[yellow]restarted[/yellow] from checkpoint {f['checkpoint_id']}",
    "checkpoint_failed": lambda f: f"[red]checkpoint {f['checkpoint_id']} failed[/red]: {f['reason']}",
    "splits_discovered": lambda f: f"found {', '.join(f['splits'])}",
    "job_finished": _finished,
}


def _line(progress: JobProgress) -> Table:
    parts = [
        f"[bold]{progress.job}[/bold]",
        f"in {progress.records_in_per_s:,.0f}/s",
        f"out {progress.records_out_per_s:,.0f}/s",
        f"watermark {_time(progress.watermark_ms)}{_lag(progress.watermark_lag_ms)}",
        _checkpoint(progress),
    ]
    if progress.late_records:
        parts.append(f"[yellow]late {progress.late_records:,}[/yellow]")
    if progress.dead_letters:
        parts.append(f"[yellow]dead letters {progress.dead_letters:,}[/yellow]")
    if progress.restarts:
        parts.append(f"[yellow]restarts {progress.restarts}[/yellow]")
    if progress.phase != "running":
        parts.append(f"[yellow]{progress.phase}[/yellow]")
    table = Table.grid()
    table.add_row(Text.from_markup("  ".join(parts)))
    for reason in progress.waiting:
        table.add_row(Text(f"  waits: {reason}", style="yellow"))
    return table


def _time(watermark_ms: int | None) -> str:
    if watermark_ms is None:
        return "-"
    if watermark_ms == WATERMARK_MAX_MS:
        return "end"
    try:
        return f"{datetime.fromtimestamp(watermark_ms / 1000, UTC):%Y-%m-%d %H:%M:%S}"
    except (ValueError, OverflowError, OSError):
        return f"{watermark_ms} ms"


def _lag(lag_ms: int | None) -> str:
    return "" if lag_ms is None else f" ({lag_ms / 1000:,.1f} s behind)"


def _checkpoint(progress: JobProgress) -> str:
    if progress.last_checkpoint_failure is not None:
        return f"[red]checkpoint failed: {progress.last_checkpoint_failure}[/red]"
    if progress.last_checkpoint_id is None:
        return "no checkpoint yet"
    return f"checkpoint {progress.last_checkpoint_id} in {progress.last_checkpoint_ms} ms"
