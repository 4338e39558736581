"""Reporters: JSON lines for scripts, a live line for people.

Every line of `--json` is an object with `event` and `ts_ms` (wall clock); docs/events.md lists them.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from onceflow.runtime.records import WATERMARK_MAX_MS, WATERMARK_MIN_MS
from onceflow.runtime.report import JobProgress, Reporter

WAITS_MAX = 3
"""How many of the things that connectors wait for are shown; the rest is counted."""


def reporter_for(as_json: bool, prints_rows: bool = False) -> Reporter:
    """JSON lines if asked for or if nobody watches; else the live line. `prints_rows`: the job has standard
    output for its rows, so that what was not asked for goes to standard error."""
    if as_json or not sys.stdout.isatty():
        return JsonLines(sys.stderr if prints_rows and not as_json else sys.stdout)
    return LiveLine(Console())


class JsonLines:
    """One JSON object per line, flushed at once. A job goes on when nobody reads them any more."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def event(self, name: str, fields: Mapping[str, Any]) -> None:
        line = {"event": name, "ts_ms": time.time_ns() // 1_000_000, **fields}
        try:
            self._stream.write(json.dumps(line) + "\n")
            self._stream.flush()
        except BrokenPipeError:
            # `| head` has seen enough. What is still in the stream's buffer must find a file at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())

    def progress(self, progress: JobProgress) -> None:
        fields = asdict(progress)
        for name in ("records_in_per_s", "records_out_per_s"):
            fields[name] = round(fields[name])
        fields["has_event_time_ended"] = progress.watermark_ms == WATERMARK_MAX_MS
        fields["watermark_ms"] = _plain_time(progress.watermark_ms)
        fields["task_counters"] = {
            task: {name: _plain_time(n) if name.endswith("_ms") else n for name, n in counters.items()}
            for task, counters in progress.task_counters.items()
        }
        self.event("progress", fields)

    def close(self) -> None:
        """Standard output is not ours to close."""


def _plain_time(time_ms: int | None) -> int | None:
    """None for what stands for the beginning or the end of event time: most readers of JSON know no integers
    beyond 2^53."""
    return None if time_ms in (WATERMARK_MIN_MS, WATERMARK_MAX_MS) else time_ms


class LiveLine:
    """One line that is drawn anew each second; what happens scrolls by above it.

    Takes the terminal when slots have started, not before: a job that can't be built leaves it as it was,
    and what a starting JVM has to say stands on lines of its own.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._had_slots = False

    def event(self, name: str, fields: Mapping[str, Any]) -> None:
        self._had_slots = self._had_slots or name == "slots_started"
        if name == "job_finished":
            self._live.stop()  # Spark may have a last word of its own
            self._had_slots = False
        describe = _EVENT_LINES.get(name)
        if describe is not None:
            self._console.print(
                Text.assemble((f"{datetime.now():%H:%M:%S} ", "dim"), describe(fields)), soft_wrap=True
            )

    def progress(self, progress: JobProgress) -> None:
        if self._had_slots or (progress.waiting and progress.phase != "over"):
            self._live.start()
            self._live.update(Group(*_lines(progress)), refresh=True)

    def close(self) -> None:
        """The live line goes; what happened stays."""
        self._live.stop()


# --- What happens -------------------------------------------------------------------------------------


def _started(fields: Mapping[str, Any]) -> Text:
    slots = ", ".join(f"{slot['slot']} = pid {slot['pid']}" for slot in fields["slots"])
    return Text(f"attempt {fields['attempt']}: slots {slots}")


def _failed(fields: Mapping[str, Any]) -> Text:
    attempt = "opening the job" if fields["attempt"] is None else f"attempt {fields['attempt']}"
    row = f" (failure {fields['failures']} in a row)" if fields["failures"] > 1 else ""
    again = f"; again in {fields['restart_in_ms'] / 1000:g} s{row}"
    return Text.assemble((f"{attempt} failed", "red"), f": {fields['reason']}{again}")


def _restarted(fields: Mapping[str, Any]) -> Text:
    return Text.assemble(("restarted", "yellow"), f" from checkpoint {fields['checkpoint_id']}")


def _checkpoint_failed(fields: Mapping[str, Any]) -> Text:
    return Text.assemble((f"checkpoint {fields['checkpoint_id']} failed", "red"), f": {fields['reason']}")


def _finished(fields: Mapping[str, Any]) -> Text:
    """Why it failed is the command's own last sentence, on standard error."""
    is_good = fields["outcome"] in ("finished", "stopped", "cancelled")
    line = Text.assemble((fields["outcome"], "green" if is_good else "red"))
    if is_good:
        line.append(f": {fields['reason']}")
    line.append(f"; last checkpoint {_known(fields['checkpoint_id'])}")
    if fields["restarts"]:
        line.append(f"; restarts {fields['restarts']}")
    if fields["late_records"]:
        line.append(f"; {fields['late_records']:,} late records", "yellow")
    return line


def _started_from(fields: Mapping[str, Any]) -> Text:
    """Which operators and sources go on, and which do not."""
    found = [(kind, fields[kind]) for kind in ("kept", "evolved", "reset", "new", "dropped") if fields[kind]]
    kinds = "; ".join(f"{kind}: {', '.join(uids)}" for kind, uids in found)
    of = f"checkpoint {fields['checkpoint_id']} of job {fields['job']!r}"
    return Text(f"starts from savepoint {fields['savepoint_id']} ({of}); {kinds or 'nothing was kept'}")


def _stop_requested(fields: Mapping[str, Any]) -> Text:
    before = "ends its sources, and " if fields["drains"] else ""
    return Text(f"{before}stops after a last checkpoint; a second signal stops at once")


_EVENT_LINES: Mapping[str, Callable[[Mapping[str, Any]], Text]] = {
    "job_started": lambda f: Text(f"{f['job']} starts on {f['master']}"),
    "encrypted": lambda f: Text(f"driver and slots speak {f['protocol']}: {f['asked_by']}"),
    "metrics_started": lambda f: Text(f"metrics at http://{f['host']}:{f['port']}/metrics"),
    "slots_started": _started,
    "attempt_failed": _failed,
    "restarted": _restarted,
    "started_from_savepoint": _started_from,
    "state_changed": lambda f: Text(f["text"], "yellow"),
    "checkpoint_failed": _checkpoint_failed,
    "stop_requested": _stop_requested,
    "damage_healed": lambda f: Text(f["message"], "yellow"),
    "entries_without_checksum": lambda f: Text(f["message"], "yellow"),
    "splits_discovered": lambda f: Text(f"found {', '.join(f['splits'])}"),
    "warning": lambda f: Text.assemble(("warning", "yellow"), f": {f['reason']}"),
    "job_finished": _finished,
}


# --- How it is now ------------------------------------------------------------------------------------


def _lines(progress: JobProgress) -> list[Text]:
    """The line, cut at the terminal's width with what matters most in front; and what is waited for."""
    line = Text(no_wrap=True, overflow="ellipsis")
    line.append(progress.job, "bold")
    if progress.phase != "running":
        line.append(f"  {progress.phase}", "yellow")
    line.append(f"  in {_rate(progress.records_in_per_s)}  out {_rate(progress.records_out_per_s)}")
    for count, name in (
        (progress.late_records, "late"),
        (progress.dead_letters, "dead letters"),
        (progress.failed_records, "failed"),
        (progress.restarts, "restarts"),
    ):
        if count:
            line.append(f"  {name} {count:,}", "yellow")
    line.append(f"  watermark {_time(progress.watermark_ms)}{_lag(progress.watermark_lag_ms)}")
    if progress.last_checkpoint_failure is not None:
        line.append(f"  checkpoint failed: {_one_line(progress.last_checkpoint_failure)}", "red")
    elif progress.last_checkpoint_id is None:
        line.append("  no checkpoint yet")
    else:
        line.append(f"  checkpoint {progress.last_checkpoint_id} ({progress.last_checkpoint_ms:,} ms)")
    if progress.slots:
        line.append(f"  busy {progress.busy_ratio:.0%}  memory {progress.rss_bytes / 2**20:,.0f} MiB")
    waits = [f"  waits: {_one_line(reason)}" for reason in progress.waiting[:WAITS_MAX]]
    if len(progress.waiting) > WAITS_MAX:
        waits.append(f"  waits: for {len(progress.waiting) - WAITS_MAX} more")
    return [line, *(Text(wait, "yellow", no_wrap=True, overflow="ellipsis") for wait in waits)]


def _one_line(reason: str) -> str:
    return " ".join(reason.split())


def _rate(per_s: float) -> str:
    return f"{per_s:,.0f}/s" if per_s < 10_000 else f"{per_s / 1_000:,.0f}k/s"


def _known(value: int | None) -> str:
    return "none" if value is None else str(value)


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
    return "" if lag_ms is None else f" (lag {lag_ms / 1000:,.1f} s)"
