"""BuiltInSources: streams that begin with a source of onceflow's own, by a call of the job."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, TypeVar, overload

from onceflow.runtime.api.built_in import built_in
from onceflow.runtime.api.stream import Stream
from onceflow.runtime.arguments import PathText
from onceflow.runtime.contracts import Sink, Source, WatermarkStrategy
from onceflow.runtime.errors import GraphError

T = TypeVar("T")


class BuiltInSources(ABC):
    """The part of a job's builder that knows sources by name."""

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
        errors_tolerance: Literal["none", "all"] = "none",
        dead_letters: Sink | None = None,
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
        errors_tolerance: Literal["none", "all"] = "none",
        dead_letters: Sink | None = None,
    ) -> Stream[Any]: ...
    def from_files(  # noqa: PLR0913 - what a source of files takes
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
        errors_tolerance: Literal["none", "all"] = "none",
        dead_letters: Sink | None = None,
    ) -> Stream[Any]:
        """The records of a file, of the files of a folder, or of those that match a pattern (`in/*.jsonl`),
        on any file system that fsspec knows (`s3://...`, whose `storage_options` go there).

        `format`: "jsonl", "csv", "parquet" or "avro", or `Csv(delimiter=";")`; by default by the name.
        JSON lines and CSV may be packed, as `.jsonl.gz`. `type` has the columns; Parquet and Avro say
        them themselves.
        One slot reads a file, each exactly once. Bounded by the files that are there at the first start;
        with `watch="10 s"` new ones are looked for so often. A file that is changed once it is there is
        refused. `rate_limit`: see source. `errors_tolerance`: "none", a record that can't be decoded ends the
        job, or "all", it goes to `dead_letters`, any sink.
        """
        source = built_in("files")(url, type, format, watch, storage_options, dead_letters, errors_tolerance)
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

    @abstractmethod
    def _read(
        self,
        source: Source,
        watermarks: WatermarkStrategy | None,
        uid: str | None,
        name: str,
        rate_limit: str | float | None,
    ) -> Stream[Any]: ...
