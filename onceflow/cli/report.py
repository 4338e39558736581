"""Reporters: JSON lines for scripts, a live line for people.

Every line of `--json` is an object with `event` and `ts_ms` (wall clock); docs/events.md lists them.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from onceflow.runtime.live_text import event_text, progress_texts
from onceflow.runtime.records import WATERMARK_MAX_MS, WATERMARK_MIN_MS
from onceflow.runtime.report import JobProgress, Reporter


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
        text = event_text(name, fields)
        if text is not None:
            self._console.print(Text.assemble((f"{datetime.now():%H:%M:%S} ", "dim"), text), soft_wrap=True)

    def progress(self, progress: JobProgress) -> None:
        if self._had_slots or (progress.waiting and progress.phase != "over"):
            self._live.start()
            self._live.update(Group(*progress_texts(progress)), refresh=True)

    def close(self) -> None:
        """The live line goes; what happened stays."""
        self._live.stop()
