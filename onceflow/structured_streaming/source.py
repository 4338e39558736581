"""The two ways to read: a batch, and a stream. What Spark calls, and in which process.

The driver asks for offsets and ranges, in a Python process that lives as long as the query; each task
reads one range in a worker. Only what is pickled with the reader gets from one to the other.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType
from tenacity import Retrying, before_sleep_log, retry_if_exception_type, stop_after_delay, wait_fixed

from onceflow.connectors.kafka.metadata import ClusterMetadata
from onceflow.runtime.clock import SystemClock
from onceflow.runtime.errors import OnceflowError, OptionError, Retryable
from onceflow.structured_streaming.arrow_types import arrow_schema_of
from onceflow.structured_streaming.read_plan import ReadPlan
from onceflow.structured_streaming.source_columns import Columns, avro_format, make_columns, raw_schema
from onceflow.structured_streaming.source_offsets import OffsetRange, Offsets, split_ranges
from onceflow.structured_streaming.source_options import Door, SourceOptions, source_options
from onceflow.structured_streaming.source_planning import Planner
from onceflow.structured_streaming.source_stream import StreamPlanner
from onceflow.structured_streaming.spark_limits import LIMITS, RefusedStream, SupportsTriggerAvailableNow
from onceflow.structured_streaming.worker_garbage import spare_imports

_LOG = logging.getLogger(__name__)
_METADATA_TIMEOUT_MS = 5_000
_PAUSE_S = 0.2
Answer = TypeVar("Answer")


def source_schema(options: Mapping[str, str]) -> Any:
    """The columns, if the user gave none. Raises OptionError if only the user can know them."""
    given = {name.lower(): value for name, value in options.items()}
    if given.get("format", "").lower() == "avro" and "avro_schema" in given:
        return from_arrow_schema(avro_format(given, None).schema)
    if "format" in given:
        raise OptionError(
            f'option format={given["format"]!r} needs the columns: .schema("user STRING, amount BIGINT")'
        )
    headers = (given.get("includeheaders") or given.get("include_headers") or "false").strip().lower()
    return from_arrow_schema(raw_schema(headers == "true"))


def batch_reader(schema: Any, options: Mapping[str, str]) -> Any:
    """The reader for spark.read. Raises OptionError."""
    return KafkaBatchReader(*_checked(schema, options, "read"))


def stream_reader(schema: Any, options: Mapping[str, str]) -> Any:
    """The reader for spark.readStream. Its first call raises what is wrong with the options: Spark stops
    the reader that it did not get if making it fails, and would show that mistake instead of ours."""
    try:
        return _stream_reader(schema, options)
    except OnceflowError as error:
        return RefusedStream(error)


def _stream_reader(schema: StructType, options: Mapping[str, str]) -> KafkaStreamReader:
    checked, columns = _checked(schema, options, "readStream")
    if checked.offsets_max is not None and LIMITS is None:
        import pyspark

        raise OptionError(
            f"maxOffsetsPerTrigger needs PySpark 4.2 or newer, and this is {pyspark.__version__}, which "
            "can't limit a source written in Python: leave it out, or upgrade"
        )
    return KafkaStreamReader(checked, columns)


def _checked(schema: StructType, options: Mapping[str, str], door: Door) -> tuple[SourceOptions, Columns]:
    checked = source_options(options, door)
    return checked, make_columns(arrow_schema_of(schema), checked.given)


class _Ranges(InputPartition):
    """The ranges of one task, at least one."""

    def __init__(self, wanted: tuple[OffsetRange, ...]) -> None:
        super().__init__(wanted)


def _read(plan: ReadPlan, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
    # Here, since Spark starts a process for each query that plans and never reads.
    from onceflow.structured_streaming.source_tasks import read_ranges

    spare_imports()
    # Spark makes a task where there is nothing to read: of None, in some versions of a partition of None.
    wanted = None if partition is None else partition.value
    if wanted is not None:
        yield from read_ranges(plan, wanted)


def _patiently(options: SourceOptions, question: Callable[[], Answer], have_answered: bool) -> Answer:
    """Ask again while the brokers are away, for as long as broker_timeout says; brokers that have not
    answered yet may be none at all."""
    within_ms = options.broker_timeout_ms if have_answered else options.first_answer_ms
    again = Retrying(
        retry=retry_if_exception_type(Retryable),
        stop=stop_after_delay(within_ms / 1000),
        wait=wait_fixed(_PAUSE_S),
        before_sleep=before_sleep_log(_LOG, logging.WARNING),
        reraise=True,
    )
    return again(question)


def _cluster(options: SourceOptions) -> ClusterMetadata:
    timeout_ms = min(_METADATA_TIMEOUT_MS, max(options.broker_timeout_ms, 1_000))
    return ClusterMetadata(options.kafka, SystemClock(), timeout_ms)


class KafkaBatchReader(DataSourceReader):
    """See DataSourceReader. What there is to read is decided once, when Spark plans the query."""

    def __init__(self, options: SourceOptions, columns: Columns) -> None:
        self._options = options
        self._plan = ReadPlan(uuid.uuid4().hex, options, columns)

    def partitions(self) -> list[InputPartition]:
        options = self._options
        cluster = _cluster(options)
        try:
            planner = Planner(options, cluster)
            start = _patiently(options, planner.initial, have_answered=False)
            end = _patiently(options, lambda: planner.final(start), have_answered=True)
            ranges = _patiently(options, lambda: planner.ranges(start, end), have_answered=True)
        finally:
            cluster.close()
        pieces = split_ranges(ranges, options.partitions_min, options.records_max)
        return [_Ranges((each,)) for each in pieces]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._plan, partition)


class KafkaStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """See DataSourceStreamReader. All but `read` is called in the driver, by one thread."""

    def __init__(self, options: SourceOptions, columns: Columns) -> None:
        self._options = options
        self._plan = ReadPlan(uuid.uuid4().hex, options, columns)
        self._cluster: ClusterMetadata | None = None
        self._stream: StreamPlanner | None = None
        self._have_answered = False

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_cluster": None, "_stream": None}

    def initialOffset(self) -> dict[str, Any]:
        return self._ask(lambda stream: stream.initial()).json()

    def latestOffset(self, start: dict[str, Any] | None = None, limit: Any = None) -> dict[str, Any]:
        if start is None:
            return self._ask(lambda stream: stream.latest_of_all()).json()
        begin = Offsets.from_json(start)
        offsets_max = limit.max_rows if LIMITS and isinstance(limit, LIMITS.ReadMaxRows) else None
        return self._ask(lambda stream: stream.latest(begin, offsets_max)).json()

    def getDefaultReadLimit(self) -> Any:
        limit = self._options.offsets_max
        return LIMITS.ReadAllAvailable() if limit is None else LIMITS.ReadMaxRows(limit)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        seen = None if self._stream is None else self._stream.seen
        return None if seen is None else seen.json()

    def prepareForTriggerAvailableNow(self) -> None:
        self._ask(lambda stream: stream.stop_at_present())

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        begin, stop = Offsets.from_json(start), Offsets.from_json(end)
        return [_Ranges(each) for each in self._ask(lambda stream: stream.tasks(begin, stop))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._plan, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing to do: the offsets are in Spark's checkpoint."""

    def stop(self) -> None:
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None

    def _ask(self, question: Callable[[StreamPlanner], Answer]) -> Answer:
        if self._stream is None:
            self._cluster = _cluster(self._options)
            self._stream = StreamPlanner(self._options, Planner(self._options, self._cluster), SystemClock())
        stream = self._stream
        answer = _patiently(self._options, lambda: question(stream), self._have_answered)
        self._have_answered = True
        return answer
