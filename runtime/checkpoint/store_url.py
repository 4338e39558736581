"""From `--checkpoint-dir` to a CheckpointStore, or a refusal by name."""

from __future__ import annotations

import threading
from pathlib import Path

from fsspec.core import split_protocol

from onceflow.runtime.checkpoint.local_store import LocalStore
from onceflow.runtime.checkpoint.memory_store import MemoryStore
from onceflow.runtime.checkpoint.store import CheckpointStore
from onceflow.runtime.errors import OptionError

OFFERED = "a local path or file:///path (also a shared file system with hard links), memory://name for tests"

_memory_lock = threading.Lock()
_memory: dict[str, MemoryStore] = {}


def open_store(url: str) -> CheckpointStore:
    """The store at this URL. Nothing is created or contacted yet.

    Raises OptionError for a file system whose conditional create is not proven.
    """
    if url.startswith("memory:"):
        name = url.removeprefix("memory:").strip("/")
        with _memory_lock:
            return _memory.setdefault(name, MemoryStore(name))
    if url.startswith("file:"):
        url = "file://" + url.removeprefix("file:") if not url.startswith("file://") else url
    protocol, path = split_protocol(url)
    match protocol:
        case None | "file" | "local":
            if not path:
                raise OptionError(f"the checkpoint folder {url!r} has no path; offered: {OFFERED}")
            return LocalStore(str(Path(path).expanduser()))
        case _:
            raise OptionError(
                f"checkpoints on {protocol}: are not offered, because it is not proven here that only one "
                f"of two writers can create a file on it; offered: {OFFERED}"
            )
