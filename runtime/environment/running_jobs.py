"""Running jobs, found through their checkpoint folder.

A driver writes `running.json` into its checkpoint folder (readable by its owner only: it holds the
control address and the credentials that open it) and notes the folder in the user's own state folder, so
that `onceflow list` finds it. On an object store the note is all there is: whoever may read a bucket is not
whoever may stop a job, so it is found on the driver's machine only.
Before that, while the host comes up and the log is not its own yet, only a note in the state folder says
that it starts. All are hints: a file of a dead driver is told by its connection being refused, and
exactness never depends on them.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import platformdirs
import psutil

from onceflow.runtime.errors import UsageError
from onceflow.runtime.sockets.credentials import Credentials, TlsIdentity

FILE_NAME = "running.json"
_STARTING = ".starting"


@dataclass(frozen=True, slots=True)
class RunningJob:
    """A driver that runs, or ran until it was killed."""

    checkpoint_dir: str
    address: tuple[str, int]
    credentials: Credentials
    pid: int

    def __repr__(self) -> str:
        return f"RunningJob({self.checkpoint_dir!r}, pid={self.pid})"  # never the secret

    @staticmethod
    def announce(checkpoint_dir: str, address: tuple[str, int], credentials: Credentials) -> RunningJob:
        """Called by the driver. A folder in this process's memory has nobody who could ask."""
        job = RunningJob(checkpoint_dir, address, credentials, os.getpid())
        file = _file(checkpoint_dir)
        if file is None:
            return job
        # A hint that can't be written (a full disk, no home folder) must not keep a job from running.
        with contextlib.suppress(OSError):
            content: dict[str, object] = {"address": list(address), "pid": job.pid}
            content["secret"] = credentials.secret.hex()
            if credentials.tls is not None:
                content["tls"] = {"certificate": credentials.tls.certificate, "key": credentials.tls.key}
            content["checkpoint_dir"] = _absolute(checkpoint_dir)
            _write_private(file, json.dumps(content))
            if file != (note := _note(checkpoint_dir)):
                _write_private(note, json.dumps({"checkpoint_dir": content["checkpoint_dir"]}))
        return job

    def withdraw(self) -> None:
        """The driver ends. Only its own file is removed: another driver may have taken over."""
        file = _file(self.checkpoint_dir)
        if file is None:
            return
        with contextlib.suppress(OSError, UsageError):
            if find(self.checkpoint_dir).pid == self.pid:
                file.unlink(missing_ok=True)
                _note(self.checkpoint_dir).unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class StartingJob:
    """A process that runs a job, or is on its way to. It can be seen, and not be asked."""

    job: str
    checkpoint_dir: str
    pid: int

    @staticmethod
    @contextmanager
    def announced(job: str, checkpoint_dir: str) -> Iterator[None]:
        """Announce this process for as long as it runs the job; one that is killed is not found any more."""
        if _file(checkpoint_dir) is None:
            yield
            return
        note = _note(checkpoint_dir).with_suffix(f".{os.getpid()}{_STARTING}")
        started_s = psutil.Process().create_time()
        content = {"job": job, "checkpoint_dir": checkpoint_dir, "pid": os.getpid(), "started_s": started_s}
        with contextlib.suppress(OSError):  # only a hint
            _write_private(note, json.dumps(content))
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                note.unlink(missing_ok=True)


def find_starting() -> Iterator[StartingJob]:
    """Every process of this user's that runs a job on this machine. Notes of dead ones are removed."""
    for note in sorted(_notes_folder().glob(f"*{_STARTING}")):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            content = json.loads(note.read_text())
            job = StartingJob(content["job"], content["checkpoint_dir"], int(content["pid"]))
            try:
                lives = psutil.Process(job.pid).create_time() == content["started_s"]
            except psutil.Error:
                lives = False
            if lives:
                yield job
            else:
                note.unlink(missing_ok=True)


def find(checkpoint_dir: str) -> RunningJob:
    """What the folder says. Raises UsageError if no driver has announced itself there."""
    file = _file(checkpoint_dir)
    if file is None or not file.exists():
        if file == _note(checkpoint_dir):
            raise UsageError(
                f"no job that you have started on this machine runs on {checkpoint_dir}: ask on the driver's "
                "machine, as its user, or start it with `onceflow run`"
            )
        raise UsageError(f"no job runs on {checkpoint_dir}: start it with `onceflow run`")
    try:
        content = json.loads(file.read_text())
        host, port = content["address"]
        tls = TlsIdentity(str(t["certificate"]), str(t["key"])) if (t := content.get("tls")) else None
        credentials = Credentials(bytes.fromhex(content["secret"]), tls)
        return RunningJob(checkpoint_dir, (str(host), int(port)), credentials, int(content["pid"]))
    except PermissionError:
        raise UsageError(f"{file} is readable by the job's owner only") from None
    except (ValueError, KeyError, TypeError):
        raise UsageError(f"{file} is damaged: remove it, and stop the job by its process id") from None


def find_all() -> Iterator[RunningJob]:
    """Every job that this user has started on this machine and that was not withdrawn."""
    for note in sorted(_notes_folder().glob("*.json")):
        with contextlib.suppress(OSError, ValueError, KeyError, UsageError):
            checkpoint_dir = json.loads(note.read_text())["checkpoint_dir"]
            if (path := _local_path(checkpoint_dir)) is not None and not path.exists():
                note.unlink(missing_ok=True)  # its driver was killed, and then it was removed
                continue
            yield find(checkpoint_dir)


def _file(checkpoint_dir: str) -> Path | None:
    """Where the address of a driver on this folder is. None: nowhere."""
    path = _local_path(checkpoint_dir)
    if path is not None:
        return path / FILE_NAME
    return None if checkpoint_dir.startswith("memory:") else _note(checkpoint_dir)


def _absolute(checkpoint_dir: str) -> str:
    path = _local_path(checkpoint_dir)
    return checkpoint_dir.rstrip("/") if path is None else str(path.absolute())


def _local_path(checkpoint_dir: str) -> Path | None:
    if checkpoint_dir.startswith("file:"):
        return Path("/" + checkpoint_dir.removeprefix("file:").lstrip("/"))
    return None if "://" in checkpoint_dir or checkpoint_dir.startswith("memory:") else Path(checkpoint_dir)


def _notes_folder() -> Path:
    return Path(platformdirs.user_state_dir("onceflow")) / "running"


def _note(checkpoint_dir: str) -> Path:
    name = hashlib.sha256(_absolute(checkpoint_dir).encode()).hexdigest()[:16]
    return _notes_folder() / f"{name}.json"


def _write_private(path: Path, text: str) -> None:
    """Whole, and never readable by others, not even for a moment."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".running-")
    with os.fdopen(handle, "w") as file:
        file.write(text)
    os.replace(temporary, path)
