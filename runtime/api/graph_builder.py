"""JobGraphBuilder: a program under construction, where its streams begin. Runs nothing."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, overload

import pyarrow as pa

from onceflow.runtime.api.built_in import built_in
from onceflow.runtime.api.collected import Collected
from onceflow.runtime.api.near_misses import no_such_name, source_advice
from onceflow.runtime.api.stream import Stream
from onceflow.runtime.arguments import PathText, check_given
from onceflow.runtime.contracts import Source, WatermarkStrategy
from onceflow.runtime.durations import rate_per_s
from onceflow.runtime.errors import GraphError
from onceflow.runtime.functions.parameters import check_declared
from onceflow.runtime.graph.columns import check_watermarks
from onceflow.runtime.graph.compile import compile_graph
from onceflow.runtime.graph.job_graph import DEFAULT_MAX_PARALLELISM, JobGraph
from onceflow.runtime.graph.steps import Input, Read, Rows, Step
from onceflow.runtime.operators.operator import MAIN
from onceflow.runtime.state.key_groups import KEY_GROUPS_MAX, can_be_max_parallelism

T = TypeVar("T")

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class JobGraphBuilder:
    """A program under construction: its name, its steps, and their uids.

    `max_parallelism` is the number of key groups: fixed for the life of a checkpoint folder, an upper bound
    for the parallelism. `params`: what its functions read as `ctx.params`, by name, each with its default
    (or its type, if it must be given), or `secret(...)`.
    """

    def __init__(
        self,
        name: str,
        max_parallelism: int = DEFAULT_MAX_PARALLELISM,
        params: Mapping[str, Any] | None = None,
    ) -> None:
        if not (isinstance(name, str) and _NAME.fullmatch(name)):
            raise GraphError(f"job name {name!r}: use letters, digits, '.', '_' and '-'")
        if not can_be_max_parallelism(max_parallelism):
            raise GraphError(f"max_parallelism={max_parallelism!r}: it must be from 1 to {KEY_GROUPS_MAX}")
        self.name = name
        self.max_parallelism = max_parallelism
        self.params = check_declared(params)
        self.collected: list[Collected[Any]] = []
        """What `stream.collect()` gave out: filled while the job runs in this process."""
        self._steps: list[Step] = []
        self._derived_uids: list[str] = []

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise no_such_name(self, name)

    def source(
        self,
        source: Source,
        watermarks: WatermarkStrategy | None = None,
        uid: str | None = None,
        rate_limit: str | float | None = None,
    ) -> Stream[Any]:
        """A stream of what the source reads. With `watermarks` it has event time, which windows need.

        `rate_limit`, as in "100/s" or "6000/min": no more records than that are read, by the whole job; each
        subtask has an equal part of it, also one that has nothing to read.
        """
        wanted = "a source, as in KafkaSource(...)"
        check_given(source, "is_bounded", "job.source(...)", wanted, GraphError, source_advice(source))
        return self._read(source, watermarks, uid, type(source).__name__, rate_limit)

    def from_elements(
        self,
        *elements: T,
        type: Any = None,
        watermarks: WatermarkStrategy | None = None,
        uid: str | None = None,
    ) -> Stream[T]:
        """A bounded stream of these elements, in their order: objects of a dataclass or a NamedTuple, dicts,
        or plain values (numbers, text), which are a column `value`.

        The columns are the type's; those of dicts are inferred, or what the schema given as `type` says. One
        slot reads them: `rebalance()` spreads them. They travel with the program: at most 64 MiB.
        """
        source = built_in("elements")(elements, type)
        return self._read_rows(source, watermarks, uid, "from_elements")

    @overload
    def from_records(
        self,
        records: Any,
        type: type[T],
        watermarks: WatermarkStrategy | None = None,
        uid: str | None = None,
    ) -> Stream[T]: ...
    @overload
    def from_records(
        self,
        records: Callable[[], Iterable[T]] | Iterable[T],
        type: None = None,
        watermarks: WatermarkStrategy | None = None,
        uid: str | None = None,
    ) -> Stream[T]: ...
    @overload
    def from_records(
        self,
        records: Any,
        type: Any = None,
        watermarks: WatermarkStrategy | None = None,
        uid: str | None = None,
    ) -> Stream[Any]: ...
    def from_records(
        self,
        records: Any,
        type: Any = None,
        watermarks: WatermarkStrategy | None = None,
        uid: str | None = None,
    ) -> Stream[Any]:
        """A stream of the records of a collection, of a table (Arrow, polars, pandas), or of a function that
        yields them (`def purchases() -> Iterator[Purchase]`, given without calling it).

        A function runs in one slot; it may go on for ever. After a restart it is called again, and what was
        read before is skipped: exactly once if it yields the same records each time, and refused where it
        does not.
        """
        source = built_in("records")(records, type)
        return self._read_rows(source, watermarks, uid, "from_records")

    @overload
    def from_files(
        self,
        url: PathText,
        type: type[T],
        *,
        format: str | Any = None,
        watch: str | int | None = None,
        watermarks: WatermarkStrategy | None = None,
        storage_options: Mapping[str, Any] | None = None,
        uid: str | None = None,
        rate_limit: str | float | None = None,
    ) -> Stream[T]: ...
    @overload
    def from_files(
        self,
        url: PathText,
        type: Any = None,
        *,
        format: str | Any = None,
        watch: str | int | None = None,
        watermarks: WatermarkStrategy | None = None,
        storage_options: Mapping[str, Any] | None = None,
        uid: str | None = None,
        rate_limit: str | float | None = None,
    ) -> Stream[Any]: ...
    def from_files(
        self,
        url: PathText,
        type: Any = None,
        *,
        format: str | Any = None,
        watch: str | int | None = None,
        watermarks: WatermarkStrategy | None = None,
        storage_options: Mapping[str, Any] | None = None,
        uid: str | None = None,
        rate_limit: str | float | None = None,
    ) -> Stream[Any]:
        """The records of a file, of the files of a folder, or of those that match a pattern (`in/*.jsonl`),
        on any file system that fsspec knows (`s3://...`, whose `storage_options` go there).

        `format`: "jsonl", "csv", "parquet" or "avro", or `Csv(delimiter=";")`; by default by the name.
        JSON lines and CSV may be packed, as `.jsonl.gz`. `type` has the columns; Parquet and Avro say
        them themselves.
        One slot reads a file, each exactly once. Bounded by the files that are there at the first start;
        with `watch="10 s"` new ones are looked for so often. A file that is changed once it is there is
        refused. `rate_limit`: see source.
        """
        source = built_in("files")(url, type, format, watch, storage_options)
        return self._read_rows(source, watermarks, uid, "from_files", rate_limit)

    @overload
    def data_generator(
        self,
        type: type[T] | Callable[[int], T],
        *,
        rate: str | float | None = None,
        count: int | None = None,
        seed: int = 0,
        fields: Mapping[str, Any] | None = None,
        watermarks: WatermarkStrategy | None = None,
        uid: str | None = None,
    ) -> Stream[T]: ...
    @overload
    def data_generator(
        self,
        type: Any,
        *,
        rate: str | float | None = None,
        count: int | None = None,
        seed: int = 0,
        fields: Mapping[str, Any] | None = None,
        watermarks: WatermarkStrategy | None = None,
        uid: str | None = None,
    ) -> Stream[Any]: ...
    def data_generator(
        self,
        type: Any,
        *,
        rate: str | float | None = None,
        count: int | None = None,
        seed: int = 0,
        fields: Mapping[str, Any] | None = None,
        watermarks: WatermarkStrategy | None = None,
        uid: str | None = None,
    ) -> Stream[Any]:
        """Made-up records: at a `rate`, as "1000/s" or a number for each second (default: as many as are
        taken), `count` in all (default: without end). The same ones for the same seed, whatever is restarted.

        `type`: a record type or a schema, whose columns get random values; `fields` says of which kind, as in
        `{"user": ["ann", "bob"], "amount": (1, 500), "id": "number", "ts": "time"}`. Or a function of the
        record's number, from 0, that makes the record (`def purchase(n: int) -> Purchase`). Up to 4 slots
        share the work.
        """
        event_time = None if watermarks is None else getattr(watermarks, "event_time", None)
        source = built_in("generator")(type, rate, count, seed, fields, event_time)
        return self._read_rows(source, watermarks, uid, "data_generator")

    def _read_rows(
        self,
        source: Source,
        watermarks: WatermarkStrategy | None,
        uid: str | None,
        name: str,
        rate_limit: str | float | None = None,
    ) -> Stream[Any]:
        """A source whose records have no timestamp beside their columns, as Kafka's have."""
        if getattr(watermarks, "needs_timestamp", False):
            raise GraphError(
                f"job.{name}(...): these records have no timestamp of their own: name the column with event "
                'time, as in WatermarkStrategy.bounded_out_of_orderness("2 s", event_time="ts")'
            )
        return self._read(source, watermarks, uid, name, rate_limit)

    def _read(
        self,
        source: Source,
        watermarks: WatermarkStrategy | None,
        uid: str | None,
        name: str,
        rate_limit: str | float | None,
    ) -> Stream[Any]:
        uid = self.new_uid(uid, name.lower())
        if watermarks is not None:
            wanted = 'a strategy, as in WatermarkStrategy.bounded_out_of_orderness("2 s")'
            check_given(watermarks, "idle_after_ms", f"source {uid!r}: watermarks", wanted, GraphError)
            check_watermarks(watermarks, source, uid)
        for field in source.schema:
            if pa.types.is_dictionary(field.type):
                raise GraphError(
                    f"source {uid!r}: column {field.name!r} is dictionary-encoded: decode it first"
                )
        rows = Rows(source.schema, source.record_type, watermarks is not None)
        rate = None if rate_limit is None else rate_per_s(rate_limit, f"source {uid!r}: rate_limit")
        if rate is not None and watermarks is not None and watermarks.idle_after_ms is not None:
            raise GraphError(
                f"source {uid!r}: a split that counts as idle may have records that rate_limit= keeps "
                "unread, and they would be late: leave out idle_after= or rate_limit="
            )
        return self.add(Step(uid, name, Read(source, watermarks, rate), (), {MAIN: rows}, uid))

    def build(self) -> JobGraph:
        """The graph that runs. Raises GraphError for a stream that ends nowhere."""
        graph = compile_graph(self.name, self._steps, self.max_parallelism)
        return replace(graph, params=self.params, derived_uids=frozenset(self._derived_uids))

    def add(self, step: Step, tags: Mapping[str, str] | None = None) -> Stream[Any]:
        """Add one more step; returns the stream of its rows. Called by the streams."""
        self._steps.append(step)
        return Stream(self, Input(step), {name: Input(step, tag) for name, tag in (tags or {}).items()})

    def new_uid(self, given: str | None, kind: str, anchor: str = "") -> str:
        """The given uid, or one derived from the anchor and the kind. Raises GraphError if it is taken."""
        taken = {s.uid: s for s in self._steps}
        if given is None:
            base = re.sub(r"[^A-Za-z0-9._-]+", "", f"{anchor}.{kind}" if anchor else kind)
            names = (f"{base}-{n}" if n > 1 else base for n in range(1, 1 << 30))
            self._derived_uids.append(next(name for name in names if name not in taken))
            return self._derived_uids[-1]
        if not _NAME.fullmatch(given):
            raise GraphError(f"uid {given!r}: use letters, digits, '.', '_' and '-'")
        if given in taken:
            raise GraphError(f"uid {given!r} is used twice, before by {taken[given].name!r}: uids are unique")
        return given
