"""A job as a process of a test, with what it says."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from tests.integration.forks import Fork

Event = dict[str, Any]


class JobProcess:
    """`onceflow run ... --json` in a session of its own; its events, its slots, its end."""

    def __init__(self, start: Callable[[int, int], subprocess.Popen[bytes] | Fork], errors: Path) -> None:
        """`start(stdout, stderr)` starts it with these descriptors."""
        self._errors = errors
        reads, writes = os.pipe()
        with errors.open("ab") as log:
            self._process = start(writes, log.fileno())
        os.close(writes)
        self._stdout = os.fdopen(reads)
        self.pid = self._process.pid
        self.events: list[Event] = []
        self.lines: list[str] = []
        self._seen = _processes(self.pid)
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self._stdout:
            with self._changed:
                self.lines.append(line)
                if line.startswith("{"):
                    self.events.append({**json.loads(line), "at": time.monotonic()})
                    self._seen += _processes(*_slots_of(self.events[-1]))
                self._changed.notify_all()

    def wait_event(
        self,
        name: str,
        where: Callable[[Event], bool] = lambda _: True,
        *,
        after: int = 0,
        timeout: float = 240,
    ) -> Event:
        """The first such event at or after number `after` (see `mark`)."""
        found: list[Event] = []

        def look() -> bool:
            found[:] = [e for e in self.events[after:] if e["event"] == name and where(e)][:1]
            return bool(found) or not self._reader.is_alive()

        with self._changed:
            deadline = time.monotonic() + timeout
            while not look() and (left := deadline - time.monotonic()) > 0:
                self._changed.wait(min(left, 0.2))
        assert found, f"no event {name!r} within {timeout} s\n{self.story()}"
        return found[0]

    mark = property(lambda self: len(self.events), doc="Events from here on are new.")

    def named(self, name: str) -> list[Event]:
        return [e for e in self.events if e["event"] == name]

    def slots(self, attempt: int | None = None) -> list[int]:
        """Process ids of the slots, of the latest attempt or of this one; waits for the first."""
        if attempt is None:
            self.wait_event("slots_started")
            started = self.named("slots_started")[-1]
        else:
            started = self.wait_event("slots_started", lambda e: e["attempt"] == attempt)
        return _slots_of(started)

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def kill_group(self, number: signal.Signals = signal.SIGKILL) -> None:
        """The driver and what it started (the JVM); as Ctrl-C or a shell would."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def wait(self, timeout: float = 240) -> int:
        """Its exit code."""
        try:
            code = self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the job did not end within {timeout} s\n{self.story()}") from None
        self._reader.join(10)
        return code

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def errors(self) -> str:
        return self._errors.read_text(errors="replace")

    def story(self) -> str:
        """What a failure message needs."""
        told = [line[:300].rstrip() for line in self.lines if '"event": "progress"' not in line]
        last = [line[:1500].rstrip() for line in self.lines if '"event": "progress"' in line]
        return "\n".join([*told[-25:], *last[-1:], "--- stderr", self.errors()[-3000:]])

    def close(self) -> None:
        """Nothing is left behind, and nothing else is killed: the number of a slot that ended minutes ago may
        be that of any process by now, or of a thread of the tests' own."""
        for process in list(self._seen):
            with suppress(psutil.NoSuchProcess):
                self._seen += process.children(recursive=True)
        self.kill_group()
        self._process.wait(120)
        for process in self._seen:
            with suppress(psutil.NoSuchProcess):
                process.kill()  # psutil looks whether it is the same process still


def _slots_of(event: Event) -> list[int]:
    """The process ids of the slots that this event tells of."""
    return [slot["pid"] for slot in event["slots"]] if event["event"] == "slots_started" else []


def _processes(*pids: int) -> list[psutil.Process]:
    """The processes of these numbers but for the tests' own, which a slot of a job on threads has, too."""
    found = []
    for pid in pids:
        with suppress(psutil.NoSuchProcess):
            if pid != os.getpid():
                found.append(psutil.Process(pid))
    return found


def is_gone(pid: int) -> bool:
    """Whether no such process runs. It may go, and be waited for, between any two questions about it."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
