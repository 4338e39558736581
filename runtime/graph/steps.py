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
from onceflow.runtime.state.evolution.readers import Readers


@dataclass(frozen=True, slots=True)
class Built:
    """An operator for a given input schema: `create` makes a fresh one, `schema` is its main output,
    `state` what it keeps (None: nothing), `readers` the types under which it reads what was kept before."""

    create: Callable[[], Operator]
    schema: pa.Schema
    state: StateDescription | None = None
    readers: Readers = field(default_factory=dict)


Build: TypeAlias = Callable[[pa.Schema], Built]
"""Called when the graph is compiled, with the input columns that are really there."""
BuildOfTwo: TypeAlias = Callable[[pa.Schema, pa.Schema], Built]
"""The same, with those of the left input and of the right one."""


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
    splits: bool = False
    """Whether its rows go to one of several side outputs each."""
    answers_later: bool = False
    """Whether its rows are in flight meanwhile; they come out without their origin."""
    makes_rows: bool = False
    """Whether its rows are new ones, without origin, and none of them is an update or a delete."""


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
    has_kinds: bool = False
    """Whether its main output has updates and deletes, though its input has none."""


@dataclass(frozen=True, slots=True)
class Side:
    """One input of an operator that has two. `reads` are the columns that it needs of it in any case."""

    reads: frozenset[str]
    keys: tuple[str, ...] = ()
    """Rows go to the subtask that owns these; none: they stay in theirs."""
    key_expressions: Mapping[str, pl.Expr] = field(default_factory=dict)
    row_tag: str | None = None
    """The side output whose rows are rows of this input, if there is one."""
    is_broadcast: bool = False
    """Whether all its rows go to every subtask."""


@dataclass(frozen=True, slots=True)
class TwoInputs:
    """An operator of two inputs: a join, or functions of the user's for two streams. The step's first input
    is the left one."""

    left: Side
    right: Side
    build: BuildOfTwo
    is_per_record: bool = False
    passes: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    """The output columns that are columns of an input: its number (0 is the left one), and the column. What
    nobody reads of them is not asked for."""
    delays_watermark_ms: int = 0
    """How far its rows' event time may lie behind the watermark."""
    takes_kinds: bool = False
    """Whether it knows updates and deletes of its inputs."""
    has_kinds: bool = False
    """Whether its main output has some, though its inputs have none."""

    @property
    def sides(self) -> tuple[Side, Side]:
        return self.left, self.right


@dataclass(frozen=True, slots=True)
class LoopHead:
    """Where the rows of the input of a loop, and those that come round, begin."""


@dataclass(frozen=True, slots=True)
class LoopTail:
    """Sends its rows back to the head of the loop of this uid. The way back is no input of any step: it is
    in no order of the graph, no channel, and no watermark waits for it."""

    loop: str
    schema: pa.Schema
    """The columns of the loop's rows, which those that come have too, in this order."""


@dataclass(frozen=True, slots=True)
class Write:
    """Rows into a sink."""

    sink: Sink


Work: TypeAlias = Read | Express | Call | Merge | Route | Keyed | TwoInputs | LoopHead | LoopTail | Write


@dataclass(frozen=True, slots=True)
class Rows:
    """What comes out of a step on one tag: columns, the user's type if there is one, event time or not."""

    schema: pa.Schema
    record_type: type | None
    has_event_time: bool
    event_time: str | None = None
    """The column that has the event time of the rows as it is, if one is known to have it."""


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
