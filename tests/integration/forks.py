"""Processes that begin as forks of one which has imported everything and loaded the kernels.

A new interpreter takes more than a CPU-second for that, and the integration tests start hundreds of jobs, few
of which are about how a job starts. Spark's daemon forks slots in the same way, from the same modules. What a
fork has in common with its brothers and a new interpreter has not is the seed of Python's hashes, and the
environment that was read while importing: tests of jobs that go on where another process stopped, and of the
environment, start new interpreters (`new_interpreters` in conftest.py).

Run as a program with the number of a socket it is the process that forks; `Forks` is the other end.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, NoReturn

import typer

from onceflow.cli import run
from onceflow.cli.app import main
from onceflow.runtime.hosts.spark import daemon
from onceflow.runtime.kernels.preparation import prepare_kernels

PRELOADED = (
    "onceflow.cli.checkpoints",
    "onceflow.connectors.formats.json.format",
    "onceflow.connectors.kafka.source.source",
    "onceflow.runtime.hosts.local",
    "onceflow.runtime.testing.faults",
)
"""What jobs and commands import, beside what Spark's daemon has for slots."""
_LENGTH_BYTES = 4


class Fork:
    """A process that was forked, as `subprocess.Popen` shows one that was started."""

    def __init__(self, pid: int, ended: int) -> None:
        """`ended`: the end of a pipe on which its exit code will come."""
        self.pid = pid
        self._ended = ended
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Its exit code, or -N if signal N has ended it; None while it runs."""
        return self._wait(0)

    def wait(self, timeout: float | None = None) -> int:
        """Raises subprocess.TimeoutExpired."""
        code = self._wait(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(f"fork {self.pid}", timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def _wait(self, timeout: float | None) -> int | None:
        if self.returncode is None and _has_something(self._ended, timeout):
            said = os.read(self._ended, 16)
            assert said, "the process that forks has ended"
            self.returncode = int(said)
            os.close(self._ended)
        return self.returncode


def _has_something(descriptor: int, timeout: float | None) -> bool:
    """Whether there is something to read. A process with hundreds of jobs has descriptors too large for
    select()."""
    found = select.poll()
    found.register(descriptor, select.POLLIN)
    return bool(found.poll(None if timeout is None else timeout * 1_000))


class Forks:
    """Starts the process that forks, and asks it for forks. Any thread."""

    def __init__(self) -> None:
        self._control, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self._lock = threading.Lock()

    def start(
        self,
        arguments: Sequence[str],
        *,
        stdout: int,
        stderr: int,
        program: Path | None = None,
        env: Mapping[str, str] | None = None,
        new_session: bool = False,
    ) -> Fork:
        """The `onceflow` command with these arguments, or this program in Python. The two are descriptors,
        which stay open here."""
        request = {
            "program": program and str(program),
            "arguments": list(arguments),
            "env": dict(os.environ if env is None else env),
            "folder": str(Path.cwd()),
            "new_session": new_session,
        }
        body = json.dumps(request).encode()
        ended, end = os.pipe()
        with self._lock:
            length = len(body).to_bytes(_LENGTH_BYTES, "big")
            socket.send_fds(self._control, [length], [stdout, stderr, end])
            self._control.sendall(body)
            os.close(end)
            pid = int.from_bytes(self._control.recv(_LENGTH_BYTES, socket.MSG_WAITALL), "big")
        assert pid, "the process that forks has ended"
        return Fork(pid, ended)

    def run(self, arguments: Sequence[str], timeout: float) -> subprocess.CompletedProcess[str]:
        """The `onceflow` command, to its end; as `subprocess.run`."""
        with TemporaryFile("w+") as out, TemporaryFile("w+") as errors:
            fork = self.start(arguments, stdout=out.fileno(), stderr=errors.fileno())
            try:
                code = fork.wait(timeout)
            except subprocess.TimeoutExpired:
                fork.send_signal(signal.SIGKILL)
                raise
            out.seek(0), errors.seek(0)
            return subprocess.CompletedProcess(list(arguments), code, out.read(), errors.read())

    def close(self) -> None:
        """Processes that were forked and still run go on."""
        self._control.close()
        self._process.wait(120)


def _serve(control: socket.socket) -> dict[str, Any]:
    """Fork until the other end is closed. Returns in forks only: what one is to run."""
    woken, wakes = socket.socketpair()
    wakes.setblocking(False)
    woken.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(wakes.fileno())
    ends: dict[int, int] = {}
    while True:
        ready, _, _ = select.select([control, woken], [], [])
        if woken in ready:
            woken.recv(4_096)
            _tell_ends(ends)
        if control not in ready:
            continue
        length, descriptors, _, _ = socket.recv_fds(control, _LENGTH_BYTES, 3)
        if not length:
            os._exit(0)
        body = control.recv(int.from_bytes(length, "big"), socket.MSG_WAITALL)
        request: dict[str, Any] = json.loads(body)
        stdout, stderr, end = descriptors
        pid = os.fork()
        if pid == 0:
            if request["new_session"]:
                os.setsid()
            control.sendall(os.getpid().to_bytes(_LENGTH_BYTES, "big"))  # from now on its group can be killed
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for each in (control, woken, wakes):
                each.close()
            for descriptor in (end, *ends.values()):
                os.close(descriptor)
            os.dup2(stdout, 1)
            os.dup2(stderr, 2)
            os.close(stdout)
            os.close(stderr)
            return request
        ends[pid] = end
        os.close(stdout)
        os.close(stderr)


def _tell_ends(ends: dict[int, int]) -> None:
    """Write the exit codes of forks that have ended, to whom they interest."""
    while ends:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        end = ends.pop(pid)
        os.write(end, str(os.waitstatus_to_exitcode(status)).encode())
        os.close(end)


def _become(request: Mapping[str, Any]) -> NoReturn:
    """What is left to do in a fork. It ends as those of `multiprocessing`, without taking down the
    interpreter, which would touch all memory that it shares."""
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["folder"])
    program = request["program"]
    sys.path[0] = "" if program is None else str(Path(program).parent)
    sys.argv.clear()
    sys.argv.extend(["-c" if program is None else program, *request["arguments"]])
    code: object = 0
    try:
        if program is None:
            main()
        else:
            runpy.run_path(program, run_name="__main__")
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
        code = 1
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))


def _main() -> None:
    for name in (*daemon.PRELOADED, *PRELOADED):
        importlib.import_module(name)
    prepare_kernels()
    # Typer imports what reads arguments when it reads some.
    typer.main.get_command(run.app).make_context("run", ["job.py", "--checkpoint-dir", "folder"])
    gc.collect()
    gc.freeze()
    _become(_serve(socket.socket(fileno=int(sys.argv[1]))))


if __name__ == "__main__":
    _main()
