"""What the compiler knows of a node, a run of expressions and an input before the graph is whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from onceflow.runtime.graph.job_graph import Broadcast, ByKey, Forward, Node, Partitioning, Target
from onceflow.runtime.graph.steps import Input, Side
from onceflow.runtime.operators import expressions


@dataclass(slots=True)
class Draft:
    """A node on its way into the graph: its outputs are still being found."""

    chain: int
    schema: pa.Schema
    make: Callable[[dict[str, Sequence[Target]]], Node]
    outputs: dict[str, list[Target]] = field(default_factory=dict)

    def connect(self, tag: str, target: Target) -> None:
        self.outputs.setdefault(tag, []).append(target)


@dataclass(slots=True)
class Run:
    """Neighbouring expression steps, to be evaluated as one."""

    start: Input
    steps: list[expressions.Step]
    uid: str
    names: list[str]


@dataclass(frozen=True, slots=True)
class Incoming:
    """What comes to one input of a chain: from where, how it is dealt out, and with which columns."""

    sources: Sequence[Input]
    partitioning: Partitioning
    schema: pa.Schema


def partitioning_of(side: Side) -> Partitioning:
    """How the rows of one of two inputs find their subtask."""
    if side.is_broadcast:
        return Broadcast()
    return ByKey(side.keys) if side.keys else Forward()
