"""Spark's limits of a batch, and a reader that says why there is none."""

from __future__ import annotations

import contextlib
import importlib
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from onceflow.runtime.errors import OnceflowError

LIMITS: Any = None
"""The module with Spark's limits of a batch; None before PySpark 4.2: no limits, AvailableNow is one batch,
and a reader is not told where a batch begins when it is asked where it ends."""
with contextlib.suppress(ImportError):
    LIMITS = importlib.import_module("pyspark.sql.streaming.datasource")
SupportsTriggerAvailableNow: Any = LIMITS.SupportsTriggerAvailableNow if LIMITS else object


class RefusedStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Stands for a reader that can't be made, and says why whatever it is asked: Spark stops the reader that
    it did not get if making it fails, and would show that mistake instead of ours."""

    def __init__(self, why: OnceflowError) -> None:
        self._why = why

    def initialOffset(self) -> dict[str, Any]:
        raise self._why

    def latestOffset(self, start: dict[str, Any] | None = None, limit: Any = None) -> dict[str, Any]:
        raise self._why

    def getDefaultReadLimit(self) -> Any:
        raise self._why

    def prepareForTriggerAvailableNow(self) -> None:
        raise self._why

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        raise self._why

    def read(self, partition: InputPartition) -> Any:
        raise self._why
