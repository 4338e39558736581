"""What the user writes on a stream: filter, map, key_by, sink_to. Runs nothing. Every call checks its
arguments against the columns that are there: a wrong name or type is refused where it is written."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack, overload

import polars as pl
import pyarrow as pa

from onceflow.runtime.api.async_streams import (
    CAPACITY,
    TIMEOUT,
    Asking,
    AskingOptions,
    Retries,
    asking_of,
    map_async,
)
from onceflow.runtime.api.batch_functions import map_batches
from onceflow.runtime.api.broadcast_streams import BroadcastStream, KeylessBroadcastStreams, connected
from onceflow.runtime.api.built_in import built_in
from onceflow.runtime.api.collected import COLLECTED_BYTES_MAX, Collected
from onceflow.runtime.api.connected_streams import ConnectedStreams
from onceflow.runtime.api.error_policies import NO_ASIDE, Aside, OnError
from onceflow.runtime.api.keyed_stream import KeyedStream
from onceflow.runtime.api.keyless_processes import processed_each
from onceflow.runtime.api.keys_of_streams import with_keys
from onceflow.runtime.api.lookups import Cache, lookup_join
from onceflow.runtime.api.loops import Body, add_loop
from onceflow.runtime.api.near_misses import no_such_name, sink_advice
from onceflow.runtime.api.record_steps import call_each, filtered
from onceflow.runtime.api.splits import SideOutputs, side_of, split
from onceflow.runtime.api.stream_ends import StreamEnd, refuse_endless, write
from onceflow.runtime.api.united_streams import united
from onceflow.runtime.api.windowed_stream import ALL_ROWS, WindowedStream
from onceflow.runtime.arguments import PathText, check_given
from onceflow.runtime.contracts import Sink
from onceflow.runtime.contracts.lookup import Lookup
from onceflow.runtime.errors import GraphError
from onceflow.runtime.explained_calls import explained_methods
from onceflow.runtime.graph.columns import ColumnCheck, NamedColumns
from onceflow.runtime.graph.functions import (
    batch_reader,
    record_reader,
    returned_record,
    takes_context,
    yielded_record,
)
from onceflow.runtime.graph.keys import check_key
from onceflow.runtime.graph.steps import Express, Input, Route, Rows, Step, Work
from onceflow.runtime.operators.expressions import Columns
from onceflow.runtime.operators.processing.keyless_process import Process
from onceflow.runtime.operators.windows.new_spans import Window
from onceflow.runtime.types.user_functions import function_name

if TYPE_CHECKING:
    from onceflow.runtime.api.graph_builder import JobGraphBuilder

T = TypeVar("T")
R = TypeVar("R")


@explained_methods
class Stream(Generic[T]):
    """Rows with columns, and perhaps a record type T of the user's. Each method gives a new stream."""

    def __init__(self, job: JobGraphBuilder, source: Input, tags: SideOutputs | None = None) -> None:
        """`tags`: the side outputs that side_output finds here, by name."""
        self._job = job
        self._input = source
        self._tags = dict(tags or {})

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise no_such_name(self, name)

    @property
    def record_type(self) -> type | None:
        """The user's type of its records, if they have one."""
        return self._input.rows.record_type

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return self._input.rows.schema

    # --- Columns ---

    def filter(
        self, predicate: pl.Expr | Callable[[T], bool], uid: str | None = None, on_error: OnError = "fail"
    ) -> Stream[T]:
        """The rows for which a polars expression, or a function of the record, is true. `on_error`: see
        map."""
        return filtered(self, predicate, uid, on_error)

    def select(self, *columns: str | pl.Expr, **named: pl.Expr | Any) -> Stream[Any]:
        """Exactly these columns: names, polars expressions, or name=expression."""
        uid = self._uid(None, "select")
        return self._columns(uid, "select", ColumnCheck(uid, self.schema).named(columns, named))

    def with_columns(self, *columns: pl.Expr, **named: pl.Expr | Any) -> Stream[Any]:
        """All columns, and these; one of the same name is replaced."""
        uid = self._uid(None, "with_columns")
        new = dict(ColumnCheck(uid, self.schema).named(columns, named))
        old = {name: pl.col(name) for name in self.schema.names}
        return self._columns(uid, "with_columns", list((old | new).items()))

    # --- Functions ---

    def map(
        self,
        fn: Callable[[T], R],
        returns: type[R] | None = None,
        uid: str | None = None,
        on_error: OnError = "fail",
    ) -> Stream[R]:
        """One record for each record; its type is the function's return annotation, or `returns`.

        `on_error`: what becomes of a record for which the function raises. "fail": the attempt fails; "drop":
        it is counted and left out; errors_to("failed"): it goes to side_output("failed") of the result.
        """
        uid = self._uid(uid, "map", fn)
        return call_each(self, uid, "map", fn, returned_record(fn, uid, returns), on_error)

    def flat_map(
        self,
        fn: Callable[[T], Iterable[R] | None],
        returns: type[R] | None = None,
        uid: str | None = None,
        on_error: OnError = "fail",
    ) -> Stream[R]:
        """Any number of records for each record: the function yields them (`-> Iterator[R]`). `on_error`: see
        map; of a record that fails nothing is kept that was yielded before."""
        uid = self._uid(uid, "flat_map", fn)
        return call_each(self, uid, "flat_map", fn, yielded_record(fn, uid, returns), on_error)

    def process(
        self,
        fn: Process[T, R],
        returns: type[R] | None = None,
        uid: str | None = None,
        on_error: OnError = "fail",
    ) -> Stream[R]:
        """An object of your class derived from Process, for each record and each watermark. `on_error`: see
        map. With a key, timers and state by key: stream.key_by(...).process(...), with a KeyedProcess."""
        return processed_each(self, fn, returns, uid, on_error)

    @overload
    def map_async(
        self,
        fn: Callable[[T], Awaitable[R]],
        returns: type[R] | None = None,
        uid: str | None = None,
        **asking: Unpack[AskingOptions],
    ) -> Stream[R]: ...
    @overload
    def map_async(
        self,
        fn: Callable[[T], R],
        returns: type[R] | None = None,
        uid: str | None = None,
        **asking: Unpack[AskingOptions],
    ) -> Stream[R]: ...
    def map_async(
        self,
        fn: Callable[[T], Any],
        returns: type[Any] | None = None,
        uid: str | None = None,
        *,
        ordered: bool = True,
        capacity: int = CAPACITY,
        timeout: str | int | None = TIMEOUT,
        retries: Retries = 0,
        on_error: OnError = "fail",
    ) -> Stream[Any]:
        """One record for each record, from a function that waits for somebody: `async def`, on an event loop
        of the subtask, or a blocking function, on threads (up to 32). Each subtask asks for at most
        `capacity` records at a time; with more to ask it reads no more.

        `ordered`: results come in the order of their records; else as they are answered, but never across a
        watermark. `timeout`: for a record with all its attempts; one that is not answered has failed.
        `retries`: how many more attempts, with growing pauses, or a tenacity.Retrying, whose retry, stop and
        wait decide. `on_error`: see map. A checkpoint holds what is in flight, and does not wait for it;
        after a restart it is asked again, so a call may be made more than once, and its result counts once.
        """
        asking = Asking(ordered, capacity, timeout, retries, on_error)
        return map_async(self, self._uid(uid, "map_async", fn), fn, returns, asking)

    def map_batches(
        self,
        fn: Callable[[Any], Any],
        schema: pa.Schema | type,
        event_time: str | None = None,
        uid: str | None = None,
        behind: str | int = 0,
        on_error: OnError = "fail",
    ) -> Stream[Any]:
        """The function over batches: pyarrow.RecordBatch, or polars.DataFrame if its parameter says so.

        How rows are cut into batches is chance: row i of the result must come from row i alone. With
        another number of rows, `event_time` names the output column that says when each happened: at most
        `behind` ("1 h") before the row that it was made of, since the watermark is held back by so much.
        `on_error`: see map; a batch that fails is called again in halves, down to the rows that do.
        """
        return map_batches(self, self._uid(uid, "map_batches", fn), fn, schema, event_time, behind, on_error)

    def lookup_join(
        self,
        lookup: Lookup | Callable[..., Any],
        on: str | Sequence[str],
        how: str = "inner",
        uid: str | None = None,
        *,
        where: pl.Expr | None = None,
        cache: Cache | None = None,
        **asking: Unpack[AskingOptions],
    ) -> Stream[Any]:
        """Each row with the rows that a table somewhere else has for its key, the columns `on`, when it is
        asked (processing time): the left columns, then the others of what is found, with `_right` behind a
        name that is taken. `where`: must be true of these. `how="left"`: a row without one comes with nulls.

        `lookup`: a Lookup such as PostgresLookup or HttpLookup, or a function of the key, `async def` or
        blocking, that returns a record, a list of them, or None. Equal keys are asked once, several in one
        request if it can; `cache=(10_000, "5 min")` keeps so many keys for so long. Others: see map_async.
        """
        return lookup_join(self, uid, lookup, on, (how, where), cache, asking_of(asking))

    # --- Several streams ---

    def union(self, *others: Stream[Any]) -> Stream[T]:
        """The rows of all, in no order among them. The columns must be the same."""
        return united(self, others)

    def split(
        self,
        by: Mapping[str, pl.Expr] | Callable[[T], str | None],
        into: Sequence[str] | None = None,
        default: str | None = None,
        uid: str | None = None,
    ) -> dict[str, Stream[T]]:
        """Streams by name, each row in one of them at most: `{"large": col("amount") > 100, ...}`, where the
        first condition that is true counts; or a function of the record that returns the name, or None, with
        all names in `into`. A row that belongs to none goes to the stream `default`, and else is dropped, as
        the plan says. The rows are read once, however many streams there are."""
        return split(self, by, into, default, uid)

    @overload
    def connect(self, other: Stream[R]) -> ConnectedStreams[T, R]: ...
    @overload
    def connect(self, other: BroadcastStream[R]) -> KeylessBroadcastStreams[T, R]: ...
    def connect(self, other: Any) -> Any:
        """This stream, the left one, and another of any type, for one function that sees the records of both:
        `a.connect(b).map(YourCoMap())`; or `rules.broadcast()`, which all subtasks get, for a
        BroadcastProcess. With state, key this one or both first: see KeyedStream.connect."""
        return connected(self, other)

    def iterate(self, body: Body, uid: str | None = None) -> Stream[Any]:
        """Rows that go round until the body lets them out: `body(loop)` gets the stream of the rows in the
        loop, those that come in and those that come round, and returns `(again, done)`: rows of the same
        columns that go round once more, and rows that leave; they are the result. There is no event time in a
        loop or behind it, so no windows. A checkpoint holds what goes round. Bounded input ends when no row
        is left in the loop. Keep what goes round in bounds: the queue on the way back has none."""
        return add_loop(self._job, self._input, self._uid(uid, "iterate"), body)

    def broadcast(self) -> BroadcastStream[T]:
        """The same rows for every subtask: `a.connect(rules.broadcast())`, also where `a` is keyed."""
        return BroadcastStream(self)

    def rebalance(self) -> Stream[T]:
        """The same rows, spread evenly over the subtasks: after a source with few or uneven splits."""
        return self._add(self._uid(None, "rebalance"), "rebalance", Route(), self._input.rows)

    def side_output(self, tag: Any) -> Stream[Any]:
        """The rows that the operator of this stream sends to a side output: late_to(tag), SideOutput."""
        return Stream(self._job, side_of(tag, self._tags, self._input.step.uid))

    def key_by(self, *keys: str | pl.Expr | Callable[[T], Any]) -> KeyedStream[Any, T]:
        """The rows by key: columns, polars expressions (each a new column, named by .alias), or one
        function of the record whose return annotation is the type of the new column "key"."""
        uid = self._uid(None, "key_by")
        if not keys:
            raise GraphError(f"operator {uid!r}: key_by needs a column, an expression or a function")
        stream, names, computed, types = with_keys(self, uid, keys)
        for name in names:
            check_key(stream.schema.field(name), uid)
        return KeyedStream(self._job, stream._input, tuple(names), computed, types)

    def window_all(self, window: Window) -> WindowedStream[T]:
        """All rows by window, without a key: in one subtask, whatever the parallelism. Results have no key
        columns."""
        return self.key_by(pl.lit(0).alias(ALL_ROWS)).window(window)

    # --- Outputs. The stream may go on elsewhere as well ---

    def sink_to(self, sink: Sink, uid: str | None = None) -> StreamEnd:
        """Write the rows."""
        uid = self._uid(uid, "sink")
        what = f"sink {uid!r}"
        check_given(sink, "check", what, "a sink, as in KafkaSink(...)", GraphError, sink_advice(sink))
        write(self, sink, uid, type(sink).__name__)
        return StreamEnd("sink_to")

    def print(self, label: str | None = None, uid: str | None = None) -> StreamEnd:
        """Show the rows on the standard output of the driver, whatever the master: a table on a terminal,
        else a JSON object a line; `label` stands before. Shown when their checkpoint is durable, once
        each."""
        return write(self, built_in("print")(label), self._uid(uid, "print"), "print")

    def foreach(self, fn: Callable[[T], Any], uid: str | None = None) -> StreamEnd:
        """Call the function with each record, in the slots, once its checkpoint is durable. At least once:
        after a failure the records of the last checkpoint may come again."""
        uid = self._uid(uid, "foreach", fn)
        reader = record_reader(fn, uid, self.schema, self._input.rows.record_type)
        return write(self, built_in("foreach")(fn, reader, True), uid, f"foreach {function_name(fn)}")

    def foreach_batch(self, fn: Callable[..., Any], uid: str | None = None) -> StreamEnd:
        """Call `fn(batch)` or `fn(batch, context)`, in the slots, with the rows of a checkpoint once it is
        durable: a pyarrow.RecordBatch, or what the annotation says, polars.DataFrame or list[YourType]. At
        least once, and a batch that comes again has the same rows and the same `context.batch_id` (see
        BatchContext)."""
        uid = self._uid(uid, "foreach_batch", fn)
        reader = batch_reader(fn, uid, self.schema, self._input.rows.record_type)
        sink = built_in("foreach")(fn, reader, False, takes_context(fn, uid))
        return write(self, sink, uid, f"foreach_batch {function_name(fn)}")

    def to_files(
        self,
        url: PathText,
        *,
        format: str | Any = "parquet",
        storage_options: Mapping[str, Any] | None = None,
        uid: str | None = None,
    ) -> StreamEnd:
        """Write the rows to files of a folder, exactly once: "parquet", "jsonl", "csv" or "avro".
        Each subtask has one for each checkpoint with rows of it, seen when it is whole and the checkpoint
        durable."""
        sink = built_in("to_files")(url, format, storage_options)
        return write(self, sink, self._uid(uid, "files"), "to_files")

    def collect(self, bytes_max: int = COLLECTED_BYTES_MAX, uid: str | None = None) -> Collected[T]:
        """The rows, in the memory of the program that runs the job, once it has: `rows = stream.collect()`,
        then `job.run()`, then `rows[0]`. For bounded input; with more than `bytes_max` bytes the job ends."""
        uid = self._uid(uid, "collect")
        refuse_endless(self._input.step, uid)
        rows: Collected[T] = Collected(self._job.name, uid, self._input.rows)
        write(self, built_in("collect")(rows, bytes_max), uid, "collect")
        self._job.collected.append(rows)
        return rows

    # --- How steps are made ---

    def _columns(
        self, uid: str, name: str, columns: NamedColumns, record_type: type | None = None
    ) -> Stream[Any]:
        rows = ColumnCheck(uid, self.schema).rows(self._input.rows, columns, record_type)
        return self._add(uid, name, Express(Columns(tuple(columns))), rows)

    def _add(self, uid: str, name: str, work: Work, rows: Rows, aside: Aside = NO_ASIDE) -> Stream[Any]:
        anchor, outputs = self._input.step.anchor, aside.outputs(rows)
        return self._job.add(Step(uid, name, work, (self._input,), outputs, anchor), aside.tags)

    def _uid(self, given: str | None, kind: str, fn: Callable[..., Any] | None = None) -> str:
        name = kind if fn is None else f"{kind}-{function_name(fn)}"
        return self._job.new_uid(given, name, self._input.step.anchor)
