"""Who runs a broker on a data folder, across processes; and why one could not start."""

from __future__ import annotations

import contextlib
import re
import shutil
import signal
from pathlib import Path

import msgspec
import psutil

from onceflow.runtime.errors import OnceflowError

_STOP_TIMEOUT_S = 30.0


class BrokerError(OnceflowError):
    """The embedded broker can't be started or reached: says why and what to do."""


class BrokerProcess(msgspec.Struct, frozen=True):
    """broker.json: the process that runs on a data folder. `started_at` tells a reused pid apart."""

    pid: int
    started_at: float
    version: str
    listeners: dict[str, int]

    def save(self, data_dir: Path) -> None:
        (data_dir / "broker.json").write_bytes(msgspec.json.encode(self))

    def process(self) -> psutil.Process | None:
        """The live process, or None if it has ended (a zombie has)."""
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(self.pid)
            is_same = abs(process.create_time() - self.started_at) < 2.0
            if is_same and process.status() != psutil.STATUS_ZOMBIE:
                return process
        return None


def running_broker(data_dir: Path) -> BrokerProcess | None:
    """Who runs on this data folder now, started by whatever process; None if nobody does."""
    try:
        found = msgspec.json.decode((data_dir / "broker.json").read_bytes(), type=BrokerProcess)
    except (FileNotFoundError, msgspec.DecodeError):
        return None
    return found if found.process() is not None else None


def end_process(process: psutil.Process) -> None:
    """End a broker cleanly (SIGTERM), even a frozen one; SIGKILL if it takes longer than 30 s."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process.send_signal(signal.SIGCONT)
        process.terminate()
        try:
            process.wait(_STOP_TIMEOUT_S)
        except psutil.TimeoutExpired:
            process.kill()
            process.wait(_STOP_TIMEOUT_S)


def stop_broker(data_dir: Path) -> BrokerProcess | None:
    """End whatever broker runs on the folder, started by any process. Returns which; None if none did."""
    running = running_broker(data_dir)
    process = running.process() if running else None
    if process is not None:
        end_process(process)
    (data_dir / "broker.json").unlink(missing_ok=True)
    return running


def require_unused(data_dir: Path) -> None:
    """BrokerError if a live broker runs on the folder; what a dead one left behind is removed."""
    running = running_broker(data_dir)
    if running is not None:
        raise BrokerError(
            f"a broker already runs on {data_dir} (process {running.pid}, port "
            f"{running.listeners['PLAINTEXT']}): use it, or stop it with "
            f"'onceflow broker stop --data {data_dir}'"
        )
    (data_dir / "broker.json").unlink(missing_ok=True)


def require_space(data_dir: Path, needed_bytes: int) -> None:
    free_bytes = shutil.disk_usage(data_dir).free
    if free_bytes < needed_bytes:
        raise BrokerError(
            f"the disk of {data_dir} is full: {free_bytes // 2**20} MiB are free and the broker needs "
            f"{needed_bytes // 2**20} MiB: free some, or choose another folder"
        )


def log_reason(log: str) -> str:
    """The first line of Kafka's log that tells why it gave up, with what we know to say about it."""
    if "No space left on device" in log:
        return "the disk is full (No space left on device): free some, or choose another folder"
    if "Failed to acquire lock on file" in log:
        return "another Kafka, not started by onceflow, holds the lock of the data folder: stop it"
    exception = re.search(r"[\w.$]*(?:Exception|Error): .+", log)
    if exception is not None:
        return exception[0][:300]
    lines = [line.strip() for line in log.splitlines()]
    return ([line for line in lines if "ERROR" in line] or lines or ["it said nothing"])[0][:300]
