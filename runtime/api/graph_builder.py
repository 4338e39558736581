"""JobGraphBuilder: a program under construction, where its streams begin. Runs nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from onceflow.runtime.api.built_in import built_in
from onceflow.runtime.api.built_in_sources import BuiltInSources
from onceflow.runtime.api.collected import Collected
from onceflow.runtime.api.near_misses import no_such_name, source_advice
from onceflow.runtime.api.stream import Stream
from onceflow.runtime.arguments import check_given
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

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class JobGraphBuilder(BuiltInSources):
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
        event_time = None if watermarks is None else watermarks.event_time
        rows = Rows(source.schema, source.record_type, watermarks is not None, event_time)
        rate = None if rate_limit is None else rate_per_s(rate_limit, f"source {uid!r}: rate_limit")
        if rate is not None and watermarks is not None and watermarks.idle_after_ms is not None:
            raise GraphError(
                f"source {uid!r}: a split that counts as idle may have records that rate_limit= keeps "
                "unread, and they would be late: leave out idle_after= or rate_limit="
            )
        return self.add(Step(uid, name, Read(source, watermarks, rate), (), {MAIN: rows}, uid))

    def sql(self, query: str, /, *, uid: str | None = None, **tables: Stream[Any]) -> Stream[Any]:
        """The rows of a query over streams, which it reads as tables by the names given here:
        `job.sql("SELECT user, amount * 2 AS twice FROM visits", visits=stream)`. What there is: docs/sql.md.

        `uid`: of the query's window or join, whose state belongs to it; of further ones it is the beginning.
        Raises GraphError with line and column for what is wrong or not supported, and UsageError without
        sqlglot: `pip install 'onceflow[sql]'`, where the graph is built.
        """
        return cast("Stream[Any]", built_in("sql")(self, query, tables, uid))

    @contextmanager
    def all_steps_or_none(self) -> Iterator[None]:
        """Steps that are added here are taken back if one of them can't be made."""
        steps, uids = len(self._steps), len(self._derived_uids)
        try:
            yield
        except BaseException:
            del self._steps[steps:], self._derived_uids[uids:]
            raise

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
