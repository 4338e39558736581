"""From `--checkpoint-dir` to a CheckpointStore, or a refusal by name."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import fsspec
from fsspec.core import split_protocol
from fsspec.spec import AbstractFileSystem

from onceflow.runtime.checkpoint.hdfs_files import SETTINGS, HdfsCheckpointFiles
from onceflow.runtime.checkpoint.local_store import LocalStore
from onceflow.runtime.checkpoint.memory_store import MemoryStore
from onceflow.runtime.checkpoint.remote_store import PATIENCE_S, RemoteStore
from onceflow.runtime.checkpoint.store import CheckpointStore
from onceflow.runtime.errors import OptionError

OFFERED = (
    "a local path or file:///path (also a shared file system with hard links), s3://bucket/path, "
    "abfs://container/path, hdfs://host:port/path, memory://name for tests"
)
_S3 = ("s3", "s3a")
_CALL_S3 = {"connect_timeout": 5, "read_timeout": 30, "retries": {"max_attempts": 1}}
"""s3fs tries each call several times itself, and the store for longer: a third one would multiply both."""
_AZURE = ("abfs", "abfss", "az")
_HDFS = ("hdfs", "viewfs")
_CALL_AZURE = {"connection_timeout": 5, "read_timeout": 30}
_PACKAGES = {
    **dict.fromkeys(_S3, "onceflow[s3]"),
    **dict.fromkeys(_AZURE, "onceflow[azure]"),
    **dict.fromkeys(_HDFS, "onceflow[hdfs]"),
}
_REFUSED = ("http", "https", "ftp", "sftp", "ssh", "webhdfs", "github", "git", "data")

_memory_lock = threading.Lock()
_memory: dict[str, MemoryStore] = {}


def open_store(
    url: str,
    options: Mapping[str, Any] | None = None,
    on_waiting: Callable[[str], None] = lambda reason: None,
    patience_s: float = PATIENCE_S,
) -> CheckpointStore:
    """The store at this URL. Nothing is created or contacted yet.

    `options`: what fsspec makes its file system with, besides its own configuration and the environment:
    credentials, an endpoint. `on_waiting`, `patience_s`: see RemoteStore. Raises OptionError for a file
    system whose conditional create is not one, or which needs a package that is not there.
    """
    if url.startswith("memory:"):
        name = url.removeprefix("memory:").strip("/")
        with _memory_lock:
            return _memory.setdefault(name, MemoryStore(name))
    if url.startswith("file:"):
        url = "file://" + url.removeprefix("file:") if not url.startswith("file://") else url
    protocol, path = split_protocol(url)
    if protocol in (None, "file", "local"):
        if not path:
            raise OptionError(f"the checkpoint folder {url!r} has no path; offered: {OFFERED}")
        return LocalStore(str(Path(path).expanduser()))
    return _remote_store(str(protocol), url, options or {}, on_waiting, patience_s)


def check_folder(url: str, options: Mapping[str, Any] | None = None) -> None:
    """Raises OptionError if it is a folder of this machine that can't be made or written, or what
    `open_store` refuses. Called before anything is started."""
    store = open_store(url, options)
    if isinstance(store, LocalStore):
        store.check_writable()


def is_remote(url: str) -> bool:
    """Whether `open_store` gives a store that is reached by a network, and shared by all who can reach it."""
    protocol, _ = split_protocol(url)
    return protocol not in (None, "file", "local", "memory") and not url.startswith(("file:", "memory:"))


def _remote_store(
    protocol: str,
    url: str,
    options: Mapping[str, Any],
    on_waiting: Callable[[str], None],
    patience_s: float,
) -> RemoteStore:
    if protocol in _REFUSED or "::" in url:
        _refuse(protocol)
    try:
        fs, root = _file_system(protocol, url, options)
    except ImportError as error:
        package = _PACKAGES.get(protocol, "the one that fsspec names")
        raise OptionError(f"checkpoints on {protocol}: need a package, {package}: {error}") from error
    except (ValueError, TypeError) as error:
        raise OptionError(f"{url}: {error}; offered: {OFFERED}") from error
    if getattr(fs.pipe_file, "__func__", None) is AbstractFileSystem.pipe_file:  # it looks, and then writes
        _refuse(protocol)
    if not root.strip("/"):
        raise OptionError(f"the checkpoint folder {url!r} has no bucket; offered: {OFFERED}")
    return RemoteStore(fs, root, url, on_waiting, patience_s)


def _file_system(protocol: str, url: str, options: Mapping[str, Any]) -> tuple[Any, str]:
    if protocol in _HDFS:
        importlib.import_module("hdfs_native.fsspec")  # else fsspec takes pyarrow's, which needs a JVM
        fs, root = fsspec.core.url_to_fs(url, **{**SETTINGS, **options})
        return HdfsCheckpointFiles(fs.client), root
    if protocol in _S3:
        options = {**options, "config_kwargs": {**_CALL_S3, **options.get("config_kwargs", {})}}
    if protocol in _AZURE:
        options = {**_CALL_AZURE, **options}
    # What was listed before may be old: another driver writes there, too.
    return fsspec.core.url_to_fs(url, use_listings_cache=False, **options)  # type: ignore[no-any-return]


def _refuse(protocol: str) -> None:
    raise OptionError(
        f"checkpoints on {protocol}: are not offered, because it is not proven here that only one "
        f"of two writers can create a file on it; offered: {OFFERED}"
    )
