"""The state backend of the jobs in integration tests: that of the environment, if a test says none."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

VARIABLE = "ONCEFLOW_TEST_STATE_BACKEND"
_OPTIONS = {"heap": (), "rocksdb": ("--state-backend", "rocksdb", "--state-memory", "16MB")}
"""RocksDB gets so little memory that most of a test's state is on disk."""


def with_backend(options: Sequence[str], environment: Mapping[str, str] = os.environ) -> list[str]:
    """The options of `onceflow run`, with those of the backend that ONCEFLOW_TEST_STATE_BACKEND names, unless
    the test has a say in it itself."""
    backend = environment.get(VARIABLE, "heap")
    if backend not in _OPTIONS:
        raise ValueError(f"{VARIABLE}={backend}: use one of {', '.join(_OPTIONS)}")
    if any(option.startswith(("--state-", "--incremental", "--no-incremental")) for option in options):
        return [*options]
    return [*options, *_OPTIONS[backend]]
