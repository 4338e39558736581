"""The job graph: chains of operators, and the edges between them.

`runtime/api/stream.py` builds it from the user's program; `runtime/slot/task.py` runs it. A chain runs in one
call stack in one task; its head is a source or an input gate. With parallelism p there are p subtasks
of every chain; slot i runs subtask i of each (Flink's slot sharing).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from onceflow.runtime.contracts import Sink, Source, WatermarkStrategy
from onceflow.runtime.functions.parameters import Declared
from onceflow.runtime.operators.operator import Operator
from onceflow.runtime.state.description import BY_SUBTASK, StateDescription
from onceflow.runtime.state.evolution.readers import Readers

DEFAULT_MAX_PARALLELISM = 128
OVERFLOWING = ("keys", "reduced", "windows", "counts", "spans", "count_panes", "panes")
"""The tables (StateDescription.table) whose rows may go to disk: see state/overflow.py."""
OVERFLOWING_JOINS = ("regular join", "interval join", "temporal join", "window join", "co-group")
"""The kinds (StateDescription.kind) of joins whose rows may do so; all joins call their table alike."""


@dataclass(frozen=True, slots=True)
class InChain:
    """Rows go on to the next node of the same chain, in the same call stack."""

    uid: str


@dataclass(frozen=True, slots=True)
class ToEdge:
    """Rows leave the chain on this edge."""

    edge_id: int


Target = InChain | ToEdge


@dataclass(frozen=True, slots=True)
class SourceNode:
    """The head of a chain that reads."""

    uid: str
    source: Source
    watermarks: WatermarkStrategy | None
    outputs: Mapping[str, Sequence[Target]]
    """Where rows go, by tag: MAIN for records, "dead-letters" for DEAD_LETTER_SCHEMA."""
    with_origin: bool = False
    name: str = "source"
    rate_per_s: float | None = None
    """How many records a second the whole job reads at most; None: as many as there are."""
    leaves_traces: bool = True
    """Whether it may tell the outside how far it has read: publish offsets, acknowledge messages."""


@dataclass(frozen=True, slots=True)
class OperatorNode:
    """An operator in a chain. `create` makes a fresh one for each subtask and attempt."""

    uid: str
    name: str
    create: Callable[[], Operator]
    schema: pa.Schema
    outputs: Mapping[str, Sequence[Target]]
    side_schemas: Mapping[str, pa.Schema] = field(default_factory=dict)
    delays_watermark_ms: int = 0
    """The watermark behind it is this much lower: its rows may have happened so much earlier."""
    state: StateDescription | None = None
    """What it keeps; None: nothing."""
    readers: Readers = field(default_factory=dict)
    """The types under which it reads what was kept before."""


@dataclass(frozen=True, slots=True)
class SinkNode:
    """The end of a chain: a writer per subtask."""

    uid: str
    sink: Sink
    schema: pa.Schema
    """The schema of the rows that the writers get."""
    name: str = "sink"


Node = SourceNode | OperatorNode | SinkNode


@dataclass(frozen=True, slots=True)
class Chain:
    """Nodes that run in one task. `head` is the uid of the first; `nodes` by uid, in topological order.

    A chain whose head is no source has an input gate, fed by the edges whose `downstream` it is; their
    rows all go to the head, each edge's to the input that it names.
    """

    chain_id: int
    head: str
    nodes: Mapping[str, Node]


@dataclass(frozen=True, slots=True)
class Forward:
    """Subtask i to subtask i: a union, or a stream with several inputs. Never leaves the slot."""


@dataclass(frozen=True, slots=True)
class ByKey:
    """Partitions by the key group of the key: columns of the batch, all present and hashable. Sets
    Records.key_hash."""

    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Rebalance:
    """Round robin over all subtasks, batch by batch."""


@dataclass(frozen=True, slots=True)
class Broadcast:
    """All rows to all subtasks."""


Partitioning = Forward | ByKey | Rebalance | Broadcast


@dataclass(frozen=True, slots=True)
class Edge:
    """An exchange between two chains: every upstream subtask has a channel to every downstream one
    (Forward: to its own only)."""

    edge_id: int
    upstream: int
    """chain_id"""
    downstream: int
    """chain_id"""
    partitioning: Partitioning
    schema: pa.Schema
    has_event_time: bool
    with_origin: bool
    has_kinds: bool = False
    """Whether rows may be updates and deletes (Records.kind)."""
    input: int = 0
    """Which input of the downstream chain's head its rows are for: 1 is the right one of an operator with
    two."""


@dataclass(frozen=True, slots=True)
class JobGraph:
    """What the slots run. Picklable by Spark's cloudpickle; immutable.

    `chains` are in topological order: a chain comes after all that feed it.
    """

    job: str
    chains: Sequence[Chain]
    edges: Sequence[Edge]
    max_parallelism: int = DEFAULT_MAX_PARALLELISM
    params: Declared = field(default_factory=dict)
    """The parameters that the program declares; no value of a secret is here."""
    derived_uids: frozenset[str] = frozenset()
    """Uids that the program does not give: they are made from the place in it, and change with that."""

    def chain(self, chain_id: int) -> Chain:
        return next(c for c in self.chains if c.chain_id == chain_id)

    def edges_into(self, chain_id: int) -> list[Edge]:
        return [e for e in self.edges if e.downstream == chain_id]

    def edges_out_of(self, chain_id: int) -> list[Edge]:
        return [e for e in self.edges if e.upstream == chain_id]

    def states(self) -> dict[str, StateDescription | None]:
        """What each node keeps, by its uid."""
        nodes = (n for c in self.chains for n in c.nodes.values())
        return {n.uid: n.state if isinstance(n, OperatorNode) else None for n in nodes}

    def readers(self, uid: str) -> Readers:
        """The types under which the node reads what was kept before."""
        nodes = (n for c in self.chains for n in c.nodes.values() if n.uid == uid)
        return next((n.readers for n in nodes if isinstance(n, OperatorNode)), {})

    def has_keyed_state(self, uid: str) -> bool:
        """Whether a subtask gets the state of its own key groups; else it gets that of all subtasks."""
        state = self.states().get(uid)
        return state is None or state.distribution != BY_SUBTASK

    def unnamed_states(self) -> list[str]:
        """Operators that keep state under a derived uid."""
        return [uid for uid, state in self.states().items() if state and uid in self.derived_uids]

    def states_in_memory(self) -> list[str]:
        """Operators whose state is in memory, whatever the backend."""
        return [uid for uid, state in self.states().items() if state and not _overflows(state)]

    def sources(self) -> list[SourceNode]:
        return [n for c in self.chains for n in c.nodes.values() if isinstance(n, SourceNode)]

    def sinks(self) -> list[SinkNode]:
        return [n for c in self.chains for n in c.nodes.values() if isinstance(n, SinkNode)]


def _overflows(state: StateDescription) -> bool:
    return state.table in OVERFLOWING or state.kind in (*OVERFLOWING_JOINS, "iterate")
