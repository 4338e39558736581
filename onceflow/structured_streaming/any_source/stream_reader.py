"""BatchedStreamReader: what Spark asks of a stream, answered by a source's BatchPlanner and its readers.

The driver plans, in a Python process that lives as long as the query; each task reads in a worker. Spark's
checkpoint has the places, so what happens after a crash is Spark's doing alone: it asks for the tasks between
two places again, and gets the same rows.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from tenacity import Retrying, before_sleep_log, retry_if_exception_type, stop_after_delay, wait_fixed

from onceflow.runtime.clock import SystemClock
from onceflow.runtime.contracts import BatchedSource, BatchLimit, BatchPlanner, Source, SplitState
from onceflow.runtime.errors import OnceflowError, OptionError, Retryable
from onceflow.structured_streaming.any_source.batch_reading import (
    PATIENCE_S,
    RowShape,
    check_corrupt,
    check_kinds,
    read_splits,
)
from onceflow.structured_streaming.any_source.source_format import SourceFormat, read_options
from onceflow.structured_streaming.arrow_types import arrow_schema_of
from onceflow.structured_streaming.corrupt_records import corrupt_column
from onceflow.structured_streaming.spark_limits import LIMITS, RefusedStream, SupportsTriggerAvailableNow
from onceflow.structured_streaming.worker_garbage import spare_imports

_LOG = logging.getLogger(__name__)
_PAUSE_S = 0.5
_PLACE = "place"
Answer = TypeVar("Answer")


def stream_reader(form: SourceFormat, schema: Any, options: Mapping[str, str]) -> Any:
    """The reader for spark.readStream; its first call raises what is wrong with the options."""
    try:
        return _stream_reader(form, schema, options)
    except OnceflowError as error:
        return RefusedStream(error)


def _stream_reader(form: SourceFormat, schema: Any, options: Mapping[str, str]) -> BatchedStreamReader:
    if LIMITS is None:
        import pyspark

        raise OptionError(
            f"readStream of {form.name} needs PySpark 4.2 or newer, and this is {pyspark.__version__}, which "
            "does not tell a source in Python where a batch begins: upgrade, or use a job of onceflow's"
        )
    asked = read_options(form, options)
    columns = arrow_schema_of(schema)
    check_kinds(columns, asked.kind_column)
    corrupt = corrupt_column(columns, asked.corrupt)
    known = {asked.given[name]: of for name, of in (form.of_letters or {}).items() if name in asked.given}
    shape = RowShape(columns, asked.kind_column, corrupt, known)
    check_corrupt(shape)
    made = pa.schema([each for each in columns if each.name not in (asked.kind_column, corrupt)])
    return BatchedStreamReader(form.make(asked.given, made), shape, asked.limit)


class _Splits(InputPartition):
    """The splits of one task."""

    def __init__(self, splits: tuple[SplitState, ...]) -> None:
        super().__init__(splits)


class BatchedStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """See DataSourceStreamReader. All but `read` is called in the driver, by one thread."""

    def __init__(self, source: Source, shape: RowShape, limit: BatchLimit) -> None:
        assert isinstance(source, BatchedSource), "see source_format.py for what can be registered"
        self._source: Any = source
        self._shape = shape
        self._limit = limit
        self._planner: BatchPlanner | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_planner": None}

    def initialOffset(self) -> dict[str, Any]:
        return self._ask(lambda planner: {_PLACE: planner.first()})

    def latestOffset(self, start: dict[str, Any] | None = None, limit: Any = None) -> dict[str, Any]:
        assert start is not None, "PySpark 4.2 and newer give it"
        return self._ask(lambda planner: {_PLACE: planner.next(start[_PLACE])})

    def getDefaultReadLimit(self) -> Any:
        """The options' own limit counts, and Spark has no word for some of it."""
        return LIMITS.ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._ask(lambda planner: planner.hold())

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        tasks = self._ask(lambda planner: planner.tasks(start[_PLACE], end[_PLACE]))
        return [_Splits(tuple(task)) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        spare_imports()
        # Spark makes a task where there is nothing to read: of None, in some versions of a partition of None.
        splits = None if partition is None else partition.value
        if splits:
            yield from read_splits(self._source, splits, self._shape)

    def commit(self, end: dict[str, Any]) -> None:
        self._ask(lambda planner: planner.done(end[_PLACE]))

    def stop(self) -> None:
        if self._planner is not None:
            self._planner.close()
            self._planner = None

    def _ask(self, question: Callable[[BatchPlanner], Answer]) -> Answer:
        planner = self._planner or self._source.open_planner(SystemClock(), self._limit)
        self._planner = planner
        again = Retrying(
            retry=retry_if_exception_type(Retryable),
            stop=stop_after_delay(PATIENCE_S),
            wait=wait_fixed(_PAUSE_S),
            before_sleep=before_sleep_log(_LOG, logging.WARNING),
            reraise=True,
        )
        return again(lambda: question(planner))
