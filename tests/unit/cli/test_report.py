"""The live line on a terminal of its own, and JSON lines, as a person and a script see them."""

from __future__ import annotations

import fcntl
import io
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from onceflow.cli.report import JsonLines, LiveLine
from onceflow.runtime.live_text import event_text
from onceflow.runtime.records import WATERMARK_MAX_MS, WATERMARK_MIN_MS
from onceflow.runtime.report import JobProgress

RUNNING = JobProgress(
    "windowed-totals",
    "running",
    records_in_per_s=301_234.4,
    records_out_per_s=9_011.0,
    watermark_ms=1_700_000_000_123,
    watermark_lag_ms=2_001,
    last_checkpoint_id=17,
    last_checkpoint_ms=84,
)
FINISHED = {
    "outcome": "finished",
    "reason": "all done",
    "checkpoint_id": 18,
    "late_records": 0,
    "restarts": 0,
}


class Screen:
    """What a terminal shows after these bytes: lines, without colours."""

    def __init__(self, output: str) -> None:
        self.lines = [""]
        self._row = self._column = 0
        for part in re.findall(r"\x1b\[\??[\d;]*[A-Za-z]|\r|\n|[^\x1b\r\n]+", output):
            self._take(part)

    @property
    def text(self) -> list[str]:
        return [line.rstrip() for line in self.lines if line.strip()]

    def _take(self, part: str) -> None:
        if part == "\r":
            self._column = 0
        elif part == "\n":
            self._row, self._column = self._row + 1, 0  # as a terminal's driver makes of it
            self.lines += [""] * (self._row + 1 - len(self.lines))
        elif part.startswith("\x1b"):
            if part.endswith("A"):
                self._row -= int(part[2:-1] or 1)
                assert self._row >= 0, "above the top"
            elif part.endswith("K"):
                assert part == "\x1b[2K"
                self.lines[self._row] = ""
            else:
                assert part[-1] in "mhl", f"unexpected control sequence {part!r}"
        else:
            line = self.lines[self._row].ljust(self._column)
            self.lines[self._row] = line[: self._column] + part + line[self._column + len(part) :]
            self._column += len(part)


class Terminal:
    """A LiveLine on a console that believes to be a terminal of this width."""

    def __init__(self, width: int = 100) -> None:
        self._file = io.StringIO()
        console = Console(file=self._file, force_terminal=True, width=width, height=24, _environ={})
        self.live = LiveLine(console)

    def started(self) -> Terminal:
        """Start slots, so that the line is drawn; what was printed for it is gone."""
        self.live.event("slots_started", {"attempt": 1, "slots": []})
        self._file.truncate(0)
        self._file.seek(0)
        return self

    @property
    def text(self) -> list[str]:
        return Screen(self.output).text

    @property
    def output(self) -> str:
        return self._file.getvalue()


def test_the_line_has_rates_watermark_and_checkpoint() -> None:
    terminal = Terminal(width=140).started()
    terminal.live.progress(RUNNING)
    assert terminal.text == [
        "windowed-totals  in 301k/s  out 9,011/s  watermark 2023-11-14 22:13:20 (lag 2.0 s)"
        "  checkpoint 17 (84 ms)"
    ]


@pytest.mark.parametrize("width", [20, 40, 80, 100, 200])
def test_however_narrow_the_terminal_it_stays_one_line(width: int) -> None:
    terminal = Terminal(width).started()
    changes: dict[str, Any] = {"late_records": 12, "restarts": 3, "last_checkpoint_failure": "why\n" * 40}
    for phase in ("running", "restarting", "running"):
        terminal.live.progress(
            JobProgress(**{**{f: getattr(RUNNING, f) for f in RUNNING.__slots__}, "phase": phase, **changes})
        )
    (line,) = terminal.text
    assert len(line) <= width
    assert line.startswith("windowed-totals")


def test_each_thing_that_is_waited_for_has_one_line_and_few_are_shown() -> None:
    terminal = Terminal(width=60)
    waiting = tuple(f"broker {n} is away since 3 s\nand on, and on, and on, and on, and on" for n in range(9))
    terminal.live.progress(JobProgress("totals", "running", waiting=waiting))
    lines = terminal.text
    assert len(lines) == 5
    assert all(line.startswith("  waits: ") and len(line) <= 60 for line in lines[1:])
    assert lines[-1] == "  waits: for 6 more"


def test_what_happens_stays_above_and_the_line_goes_at_the_end() -> None:
    terminal = Terminal(width=140)
    live = terminal.live
    live.event("job_started", {"job": "windowed-totals", "master": "local[2]"})
    live.progress(JobProgress("windowed-totals", "starting"))
    assert [line[9:] for line in terminal.text] == ["windowed-totals starts on local[2]"], "no line yet"
    live.event("slots_started", {"attempt": 2, "slots": [{"slot": 0, "pid": 7, "host": "here"}]})
    live.progress(RUNNING)
    live.event(
        "attempt_failed", {"attempt": 2, "reason": "slot 1 was lost", "restart_in_ms": 200, "failures": 1}
    )
    live.event("checkpoint_completed", {"checkpoint_id": 17})
    live.event("restarted", {"attempt": 3, "checkpoint_id": 17, "reason": "slot 1 was lost"})
    live.progress(RUNNING)
    assert len(terminal.text) == 5
    live.event("job_finished", {**FINISHED, "late_records": 1_234, "restarts": 1})
    live.close()
    assert [line[9:] for line in terminal.text] == [
        "windowed-totals starts on local[2]",
        "attempt 2: slots 0 = pid 7",
        "attempt 2 failed: slot 1 was lost; again in 0.2 s",
        "restarted from checkpoint 17",
        "finished: all done; last checkpoint 18; restarts 1; 1,234 late records",
    ]
    assert terminal.output.rindex("\x1b[?25h") > terminal.output.rindex("\x1b[?25l")  # the cursor is back


def test_brackets_in_a_reason_are_text_and_no_markup() -> None:
    terminal = Terminal(width=140)
    reason = "KeyError: '[/red]' in [topic-3] at [offset 17]"
    terminal.live.event("checkpoint_failed", {"checkpoint_id": 4, "reason": reason})
    terminal.live.event(
        "attempt_failed", {"attempt": None, "reason": reason, "restart_in_ms": 1_500, "failures": 1}
    )
    assert [line[9:] for line in terminal.text] == [
        f"checkpoint 4 failed: {reason}",
        f"opening the job failed: {reason}; again in 1.5 s",
    ]


def test_a_job_that_fails_before_it_starts_leaves_the_terminal_alone() -> None:
    terminal = Terminal()
    terminal.live.close()
    assert terminal.output == ""


def test_a_job_that_failed_ends_with_its_last_checkpoint() -> None:
    terminal = Terminal()
    terminal.live.event("job_finished", {**FINISHED, "outcome": "failed", "checkpoint_id": None})
    assert terminal.text[0][9:] == "failed; last checkpoint none"


@pytest.mark.parametrize(
    ("watermark_ms", "shown"),
    [
        (None, "watermark -"),
        (WATERMARK_MAX_MS, "watermark end"),
        (WATERMARK_MAX_MS - 1, f"{WATERMARK_MAX_MS - 1} ms"),
    ],
)
def test_a_watermark_that_is_no_time_is_shown_all_the_same(watermark_ms: int | None, shown: str) -> None:
    terminal = Terminal().started()
    terminal.live.progress(JobProgress("totals", "running", watermark_ms=watermark_ms))
    assert shown in terminal.text[0]


ON_A_TERMINAL = """
from onceflow.cli.report import LiveLine, reporter_for
from onceflow.runtime.report import JobProgress
reporter = reporter_for(as_json=False)
assert isinstance(reporter, LiveLine)
reporter.event("slots_started", {"attempt": 1, "slots": []})
for n in range(5):
    reporter.progress(JobProgress("totals", "running", records_in=n, waiting=("the broker " * 30,) * (n % 3)))
    reporter.event("splits_discovered", {"uid": "s", "splits": [f"events-{n}"]})
reporter.close()
"""


def test_on_a_real_terminal_each_redraw_replaces_the_last() -> None:
    """A pseudo terminal of 50 columns; what is left on it is what a person sees."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 50, 0, 0))
    environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")}
    command = [sys.executable, "-c", ON_A_TERMINAL]
    with subprocess.Popen(command, stdout=theirs, env={**environment, "TERM": "xterm"}) as child:
        os.close(theirs)
        output = bytearray()
        try:
            while part := os.read(ours, 1 << 16):
                output += part
        except OSError:
            pass  # Linux's way to say that the other end is closed
        os.close(ours)
    assert child.returncode == 0
    assert [line[9:] for line in Screen(output.decode()).text] == [
        "attempt 1: slots",
        *(f"found events-{n}" for n in range(5)),
    ]


def test_the_clients_own_log_lines_stay_away_from_the_terminal() -> None:
    """librdkafka says several times a second that a broker is away; the live line says it once."""
    script = "import onceflow, logging; logging.getLogger('onceflow.connectors.kafka.x').warning('FAIL')"
    run = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120
    )
    assert run.stderr + run.stdout == ""


def test_json_lines_are_one_object_each_with_event_and_time() -> None:
    stream = io.StringIO()
    reporter = JsonLines(stream)
    reporter.event("restarted", {"attempt": 2, "reason": 'a "quoted"\nreason'})
    reporter.progress(RUNNING)
    first, second = (json.loads(line) for line in stream.getvalue().splitlines())
    assert first == {
        "event": "restarted",
        "ts_ms": first["ts_ms"],
        "attempt": 2,
        "reason": 'a "quoted"\nreason',
    }
    assert second["event"] == "progress"
    assert second["records_in_per_s"] == 301_234
    assert set(second) == {"event", "ts_ms", "has_event_time_ended", *RUNNING.__slots__}


def test_times_that_stand_for_the_ends_of_event_time_are_no_numbers_in_json() -> None:
    counters = {"clicks": {"records_in": 3, "watermark_ms": WATERMARK_MAX_MS, "max_event_time_ms": 17}}
    counters["others"] = {"records_in": 0, "watermark_ms": 5, "max_event_time_ms": WATERMARK_MIN_MS}
    stream = io.StringIO()
    ended = JobProgress("totals", "running", watermark_ms=WATERMARK_MAX_MS, task_counters=counters)
    for progress in (ended, JobProgress("totals", "running", watermark_ms=5)):
        JsonLines(stream).progress(progress)
    first, second = (json.loads(line) for line in stream.getvalue().splitlines())
    assert (first["watermark_ms"], first["has_event_time_ended"]) == (None, True)
    assert (second["watermark_ms"], second["has_event_time_ended"]) == (5, False)
    assert first["task_counters"] == {
        "clicks": {"records_in": 3, "watermark_ms": None, "max_event_time_ms": 17},
        "others": {"records_in": 0, "watermark_ms": 5, "max_event_time_ms": None},
    }


PRINTED = """
from onceflow import Job
job = Job("printed")
job.from_elements({"n": 1}, {"n": 2}).print()
"""


def test_a_job_that_prints_has_standard_output_for_its_rows(tmp_path: Path) -> None:
    (tmp_path / "printed.py").write_text(PRINTED)
    onceflow = str(Path(sys.executable).with_name("onceflow"))
    options = ["--master", "threads[1]", "--checkpoint-dir", str(tmp_path / "ck")]
    run = subprocess.run(
        [onceflow, "run", str(tmp_path / "printed.py"), *options], capture_output=True, text=True, timeout=240
    )
    assert run.returncode == 0, run.stderr
    assert sorted(map(json.loads, run.stdout.splitlines()), key=str) == [{"n": 1}, {"n": 2}]
    assert json.loads(run.stderr.splitlines()[-1])["event"] == "job_finished"


def test_going_back_says_where_rows_are_that_come_again() -> None:
    text = event_text(
        "went_back",
        {
            "to": 4,
            "past": 9,
            "checkpoint_id": 10,
            "doubled": {
                "out": [{"topic": "t", "partition": 1, "begin": 7, "end": 9}, {"message": "elsewhere"}],
                "table": [],
            },
        },
    )
    assert text is not None
    assert text.plain == (
        "goes back to checkpoint 4; those up to 9 are abandoned; sink 'out' writes again what is in t[1] "
        "from offset 7 to 8, elsewhere; sink 'table' writes again what it has written since then"
    )


def test_a_job_goes_on_when_nobody_reads_its_lines_any_more() -> None:
    script = """
import sys
from onceflow.cli.report import JsonLines
lines = JsonLines(sys.stdout)
sys.stdin.readline()
for _ in range(3):
    lines.event("progress", {"filling": "x" * 100_000})
print("went on", file=sys.stderr)
"""
    with subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        child.stdout.close()
        _, said = child.communicate("go\n", timeout=120)
    assert said == "went on\n"
    assert child.returncode == 0


def test_a_start_from_a_savepoint_says_what_goes_on_and_what_does_not() -> None:
    file = io.StringIO()
    line = LiveLine(Console(file=file, width=400))
    kinds = {"kept": ["op", "src"], "evolved": [], "reset": ["in"], "new": [], "dropped": ["old"]}
    groups = {"max_parallelism_before": 128, "max_parallelism": 256}
    of = {"savepoint_id": "5f0c", "job": "t", "checkpoint_id": 4}
    line.event("started_from_savepoint", {**of, **kinds, **groups})
    told = "starts from savepoint 5f0c (checkpoint 4 of job 't'); kept: op, src; reset: in; dropped: old"
    told += "; max_parallelism 256 in place of 128"
    assert told in file.getvalue()
