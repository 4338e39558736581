"""The two ways to write: a batch, all rows or none, and a stream, each micro-batch once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onceflow.runtime.errors import UsageError


def batch_writer(schema: Any, options: Mapping[str, str], overwrite: bool) -> Any:
    """For df.write."""
    raise UsageError("onceflow-kafka can't write yet")


def stream_writer(schema: Any, options: Mapping[str, str], overwrite: bool) -> Any:
    """For df.writeStream."""
    raise UsageError("onceflow-kafka can't write yet")
