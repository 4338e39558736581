"""The steps of a user's program, as they were written; `compile.py` makes a job graph of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import polars as pl
import pyarrow as pa

from onceflow.runtime.contracts import Sink, Source, WatermarkStrategy
from onceflow.runtime.operators import expressions
from onceflow.runtime.operators.operator import MAIN, Operator
from onceflow.runtime.state.description import StateDescription


@dataclass(frozen=True, slots=True)
class Built:
    """An operator for a given input schema: `create` makes a fresh one, `schema` is its main output,
    `state` what it keeps (None: nothing)."""

    create: Callable[[], Operator]
    schema: pa.Schema
    state: StateDescription | None = None


Build: TypeAlias = Callable[[pa.Schema], Built]
"""Called when the graph is compiled, with the input columns that are really there."""


@dataclass(frozen=True, slots=True)
class Read:
    """Rows from a source."""

    source: Source
    watermarks: WatermarkStrategy | None
    rate_per_s: float | None = None


@dataclass(frozen=True, slots=True)
class Express:
    """Polars expressions over columns; neighbours are fused."""

    step: expressions.Step


@dataclass(frozen=True, slots=True)
class Call:
    """A stateless function of the user's. `reads` are the columns it gets; if `passes`, input columns
    are in the output as they were."""

    build: Build
    reads: frozenset[str]
    passes: bool = False
    is_per_record: bool = True
    delays_watermark_ms: int = 0
    """How far its rows' event time may lie behind that of the rows it gets."""
    sets_aside: bool = False
    """Whether a row for which the function raises is dropped or sent to a side output."""


@dataclass(frozen=True, slots=True)
class Merge:
    """A union."""


@dataclass(frozen=True, slots=True)
class Route:
    """The same rows in other subtasks: those with the same values in the columns `keys` in one, in their
    order; without keys round robin, as a rebalance does."""

    keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Keyed:
    """A stateful operator behind a key_by. `row_tags`: side outputs whose rows are input rows."""

    keys: tuple[str, ...]
    build: Build
    reads: frozenset[str]
    row_tags: frozenset[str] = frozenset()
    is_per_record: bool = False
    key_expressions: Mapping[str, pl.Expr] = field(default_factory=dict)
    """The expressions of the keys that are computed by key_by."""


@dataclass(frozen=True, slots=True)
class Write:
    """Rows into a sink."""

    sink: Sink


Work: TypeAlias = Read | Express | Call | Merge | Route | Keyed | Write


@dataclass(frozen=True, slots=True)
class Rows:
    """What comes out of a step on one tag: columns, the user's type if there is one, event time or not."""

    schema: pa.Schema
    record_type: type | None
    has_event_time: bool


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One step of the program. `anchor` is the uid that derived uids downstream begin with: the nearest
    source or stateful operator, so that a stateless step in between changes nobody's uid."""

    uid: str
    name: str
    work: Work
    inputs: tuple[Input, ...]
    outputs: Mapping[str, Rows] = field(default_factory=dict)
    anchor: str = ""

    @property
    def rows(self) -> Rows:
        return self.outputs[MAIN]


@dataclass(frozen=True, slots=True)
class Input:
    """One output of an earlier step."""

    step: Step
    tag: str = MAIN

    @property
    def rows(self) -> Rows:
        return self.step.outputs[self.tag]
