"""JobGraphBuilder: a program under construction, where its streams begin. Runs nothing."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from onceflow.runtime.api.stream import Stream
from onceflow.runtime.arguments import check_given
from onceflow.runtime.contracts import Source, WatermarkStrategy
from onceflow.runtime.errors import GraphError
from onceflow.runtime.graph.columns import check_event_time
from onceflow.runtime.graph.compile import compile_graph
from onceflow.runtime.graph.job_graph import DEFAULT_MAX_PARALLELISM, JobGraph
from onceflow.runtime.graph.steps import Input, Read, Rows, Step
from onceflow.runtime.operators.operator import MAIN

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_MAX_PARALLELISM = 1 << 15


class JobGraphBuilder:
    """A program under construction: its name, its steps, and their uids.

    `max_parallelism` is the number of key groups: fixed for the life of the job's state, an upper bound
    for its parallelism.
    """

    def __init__(self, name: str, max_parallelism: int = DEFAULT_MAX_PARALLELISM) -> None:
        if not (isinstance(name, str) and _NAME.fullmatch(name)):
            raise GraphError(f"job name {name!r}: use letters, digits, '.', '_' and '-'")
        if not (isinstance(max_parallelism, int) and 1 <= max_parallelism <= _MAX_PARALLELISM):
            raise GraphError(f"max_parallelism={max_parallelism!r}: it must be from 1 to {_MAX_PARALLELISM}")
        self.name = name
        self.max_parallelism = max_parallelism
        self._steps: list[Step] = []

    def source(
        self, source: Source, watermarks: WatermarkStrategy | None = None, uid: str | None = None
    ) -> Stream[Any]:
        """A stream of what the source reads. With `watermarks` it has event time, which windows need."""
        check_given(source, "schema", "job.source(...)", "a source, as in KafkaSource(...)", GraphError)
        uid = self.new_uid(uid, type(source).__name__.lower())
        if watermarks is not None:
            wanted = 'a strategy, as in WatermarkStrategy.bounded_out_of_orderness("2 s")'
            check_given(watermarks, "idle_after_ms", f"source {uid!r}: watermarks", wanted, GraphError)
        if watermarks is not None and watermarks.event_time is not None:
            check_event_time(watermarks.event_time, source.schema, uid)
        for field in source.schema:
            if pa.types.is_dictionary(field.type):
                raise GraphError(
                    f"source {uid!r}: column {field.name!r} is dictionary-encoded: decode it first"
                )
        rows = Rows(source.schema, source.record_type, watermarks is not None)
        step = Step(uid, type(source).__name__, Read(source, watermarks), (), {MAIN: rows}, uid)
        return self.add(step)

    def build(self) -> JobGraph:
        """The graph that runs. Raises GraphError for a stream that ends nowhere."""
        return compile_graph(self.name, self._steps, self.max_parallelism)

    def add(self, step: Step, tags: Mapping[str, str] | None = None) -> Stream[Any]:
        """Add one more step; returns the stream of its rows. Called by the streams."""
        self._steps.append(step)
        return Stream(self, Input(step), tags)

    def new_uid(self, given: str | None, kind: str, anchor: str = "") -> str:
        """The given uid, or one derived from the anchor and the kind. Raises GraphError if it is taken."""
        taken = {s.uid: s for s in self._steps}
        if given is None:
            base = re.sub(r"[^A-Za-z0-9._-]+", "", f"{anchor}.{kind}" if anchor else kind)
            return next(u for n in range(1, 1 << 30) if (u := f"{base}-{n}" if n > 1 else base) not in taken)
        if not _NAME.fullmatch(given):
            raise GraphError(f"uid {given!r}: use letters, digits, '.', '_' and '-'")
        if given in taken:
            raise GraphError(f"uid {given!r} is used twice, before by {taken[given].name!r}: uids are unique")
        return given
