"""Where a process stands still, when C code in it keeps Python's lock: no thread of Python's can tell then.

faulthandler has a thread of its own, in C, that needs no lock: unless it is put off in time, again and
again, it writes the stacks of all threads. A slot that is a process writes them where the driver can read
them, on its machine into a file in memory that goes with the process, elsewhere to standard error; and the
driver ends it. A slot that is a thread stands still together with the driver: there the process ends.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import re
import threading
from dataclasses import dataclass

SHOW_AFTER = 0.75
"""The part of the slot timeout after which the stacks are shown: before the driver, who has to read them,
gives up the slot."""
_STANDARD_ERROR = 2
_NAME = "onceflow-stacks"
_BYTES_MAX = 1 << 20
_THREADS = re.compile(r"^(?:Current )?[Tt]hread .*$", re.MULTILINE)
_FRAME = re.compile(r'^  File "(.*)", line (\d+) in (.*)$', re.MULTILINE)
_LOOP = os.path.join("runtime", "slot", "process.py"), "_loop"


class StallWatch:
    """Notices that a slot's process stands still. Thread-safe. Does nothing before `put_off` is called
    first."""

    def __init__(self, timeout_ms: float, has_process: bool, is_near: bool) -> None:
        """`has_process`: the slot is a process that the driver can end; `is_near`: the driver is on its
        machine."""
        self._seconds = timeout_ms / 1000 * (SHOW_AFTER if has_process else 1.0)
        self._ends_process = not has_process
        self._lock = threading.Lock()
        self._is_over = False
        self.fd: int | None = None
        """The descriptor of the file that the driver reads (`read_stacks`); None: there is none."""
        if has_process and is_near and hasattr(os, "memfd_create"):  # Linux
            with contextlib.suppress(OSError):
                self.fd = os.memfd_create(_NAME)

    def put_off(self) -> None:
        """Python runs: stacks are written after the slot timeout from now on, and not those of before."""
        with self._lock:
            if self._is_over:
                return
            faulthandler.cancel_dump_traceback_later()
            if self.fd is not None:
                os.ftruncate(self.fd, 0)
                os.lseek(self.fd, 0, os.SEEK_SET)
            file = _STANDARD_ERROR if self.fd is None else self.fd
            faulthandler.dump_traceback_later(self._seconds, file=file, exit=self._ends_process)

    def close(self) -> None:
        """Nobody waits for the slot any more."""
        with self._lock:
            if not self._is_over:
                self._is_over = True
                faulthandler.cancel_dump_traceback_later()
                if self.fd is not None:
                    os.close(self.fd)


@dataclass(frozen=True, slots=True)
class Place:
    """A line of a program."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} in {self.function}"

    @property
    def fingerprint(self) -> str:
        """What it has in common with the same place in another attempt, maybe on another machine."""
        return f"stands still at {os.path.basename(self.file)}:{self.line} in {self.function}"


def read_stacks(pid: int, fd: int) -> str:
    """What a slot's process on this machine has written; "" if it has not, or is gone."""
    path = f"/proc/{pid}/fd/{fd}"
    try:
        if _NAME not in os.readlink(path):
            return ""
        with open(path, "rb") as file:
            return file.read(_BYTES_MAX).decode(errors="replace")
    except OSError:
        return ""


def find_place(stacks: str) -> Place | None:
    """Where the slot's own thread is: the line of what our code has called, of the user's function if it is
    in one; else our line. None: the stacks don't tell.

    Pure. `stacks`: as faulthandler writes them, the innermost frame first.
    """
    for stack in _THREADS.split(stacks):
        frames = [Place(file, int(line), function) for file, line, function in _FRAME.findall(stack)]
        loops = [f for f in frames if f.file.endswith(_LOOP[0]) and f.function == _LOOP[1]]
        if loops:
            ours = loops[0].file.removesuffix(_LOOP[0]) + "runtime" + os.sep
            first = next(number for number, frame in enumerate(frames) if frame.file.startswith(ours))
            return frames[max(0, first - 1)]
    return None
