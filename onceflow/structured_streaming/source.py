"""The two ways to read: a batch, and a stream. Being written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onceflow.runtime.errors import UsageError

_NOT_YET = "onceflow-kafka can't read yet"


def source_schema(options: Mapping[str, str]) -> Any:
    """The columns, if the user gave none."""
    raise UsageError(_NOT_YET)


def batch_reader(schema: Any, options: Mapping[str, str]) -> Any:
    """For spark.read."""
    raise UsageError(_NOT_YET)


def stream_reader(schema: Any, options: Mapping[str, str]) -> Any:
    """For spark.readStream."""
    raise UsageError(_NOT_YET)
