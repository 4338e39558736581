"""From the steps of a program to the job graph: what runs in one call stack, what crosses an exchange.

Pure: the same steps give the same graph. Four passes: which columns each step must give (so that the
source decodes no others and the exchange carries no others), which rows must say where they came from,
where chains begin, and last the frozen graph.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa

from onceflow.runtime.contracts import DEAD_LETTER_SCHEMA, DeadLetterSource, ProjectableSource, Source
from onceflow.runtime.errors import GraphError
from onceflow.runtime.graph.job_graph import (
    ByKey,
    Chain,
    Edge,
    Forward,
    InChain,
    JobGraph,
    Node,
    OperatorNode,
    Partitioning,
    Rebalance,
    SinkNode,
    SourceNode,
    Target,
    ToEdge,
)
from onceflow.runtime.graph.step_rules import find_changelogs, refuse_loose_ends
from onceflow.runtime.graph.steps import Built, Call, Express, Input, Keyed, Merge, Read, Route, Step, Write
from onceflow.runtime.operators import expressions
from onceflow.runtime.operators.describe import with_key_expressions
from onceflow.runtime.operators.operator import MAIN, Operator
from onceflow.runtime.operators.stateless import Stateless, pass_on

DEAD_LETTERS = "dead-letters"


def compile_graph(job: str, steps: Sequence[Step], max_parallelism: int) -> JobGraph:
    """The graph of these steps, which are in the order in which they were written (inputs first).

    Raises GraphError if there is nothing to run, if a step's rows go nowhere, or if one gets updates and
    deletes and does not know them.
    """
    refuse_loose_ends(job, steps)
    return _Compiler(job, steps).run(max_parallelism)


@dataclass(slots=True)
class _Draft:
    """A node on its way into the graph: its outputs are still being found."""

    chain: int
    schema: pa.Schema
    make: Callable[[dict[str, Sequence[Target]]], Node]
    outputs: dict[str, list[Target]] = field(default_factory=dict)

    def connect(self, tag: str, target: Target) -> None:
        self.outputs.setdefault(tag, []).append(target)


@dataclass(slots=True)
class _Run:
    """Neighbouring expression steps, to be evaluated as one."""

    start: Input
    steps: list[expressions.Step]
    uid: str
    names: list[str]


class _Compiler:
    def __init__(self, job: str, steps: Sequence[Step]) -> None:
        self._job = job
        self._steps = steps
        self._consumers: dict[str, list[tuple[Step, str]]] = {s.uid: [] for s in steps}
        for step in steps:
            for source in step.inputs:
                self._consumers[source.step.uid].append((step, source.tag))
        self._needed = self._find_needed_columns()
        self._wants_origin = self._find_origin()
        self._has_kinds = find_changelogs(steps)
        self._has_origin: dict[str, bool] = {}
        self._drafts: dict[str, _Draft] = {}
        self._placed: dict[str, str] = {}  # step uid -> uid of the node with its rows
        self._runs: dict[str, _Run] = {}
        self._heads: list[str] = []
        self._edges: list[Edge] = []

    def run(self, max_parallelism: int) -> JobGraph:
        for step in self._steps:
            self._place(step)
        chains = [
            Chain(i, head, {uid: d.make(dict(d.outputs)) for uid, d in self._drafts.items() if d.chain == i})
            for i, head in enumerate(self._heads)
        ]
        return JobGraph(self._job, chains, self._edges, max_parallelism)

    # --- What has to be there ---

    def _find_needed_columns(self) -> dict[str, set[str]]:
        """The columns of each step's main output that somebody reads, by uid."""
        needed: dict[str, set[str]] = {s.uid: set() for s in self._steps}
        for step in reversed(self._steps):
            for source in step.inputs:
                if source.tag == MAIN:
                    needed[source.step.uid] |= self._reads(
                        step, needed[step.uid], set(source.rows.schema.names)
                    )
        return needed

    def _reads(self, step: Step, wanted: set[str], given: set[str]) -> set[str]:
        match step.work:
            case Express(one):
                return expressions.needed_columns([one], wanted)
            case Call(reads=reads, passes=passes):
                return set(reads) | (wanted & given if passes else set())
            case Keyed(keys=keys, reads=reads, row_tags=row_tags):
                whole_rows = any(tag in row_tags for _, tag in self._consumers[step.uid])
                return given if whole_rows else set(keys) | reads
            case Merge():
                return wanted
            case Route(keys=keys):
                return wanted | set(keys)
            case _:
                return given

    def _find_origin(self) -> dict[str, bool]:
        """Whether a per-record function gets a step's rows (to be named if it raises), by the step's uid."""
        wants = {s.uid: False for s in self._steps}
        for step in reversed(self._steps):
            is_stateless = isinstance(step.work, Express | Call | Merge | Route)
            is_function = isinstance(step.work, Call | Keyed) and step.work.is_per_record
            if is_function or (is_stateless and wants[step.uid]):
                for source in step.inputs:
                    wants[source.step.uid] |= source.tag == MAIN
        return wants

    # --- Chains and edges ---

    def _place(self, step: Step) -> None:
        self._has_origin[step.uid] = (
            self._wants_origin[step.uid]
            if isinstance(step.work, Read)
            else not isinstance(step.work, Keyed)
            and all(i.tag == MAIN and self._has_origin[i.step.uid] for i in step.inputs)
        )
        match step.work:
            case Read():
                self._place_source(step, step.work)
            case Express():
                self._place_expression(step, step.work)
            case Call(build=build, delays_watermark_ms=delay_ms):
                built = build(self._schema_of(step.inputs[0]))
                sides = {t: r.schema for t, r in step.outputs.items() if t != MAIN}
                self._add_behind(step.inputs[0], step.uid, step.name, built, delay_ms, sides)
                self._placed[step.uid] = step.uid
            case Merge():
                if not all(isinstance(c.work, Keyed | Merge | Route) for c, _ in self._consumers[step.uid]):
                    schema = self._narrowed(step.rows.schema, step)
                    self._begin_chain(step, Forward(), Built(_identity, schema), schema)
            case Route(keys=keys):
                schema, how = self._narrowed(step.rows.schema, step), ByKey(keys) if keys else Rebalance()
                self._begin_chain(step, how, Built(_identity, schema), schema)
            case Keyed(keys=keys, build=build):
                wanted = self._reads(step, set(), set(step.inputs[0].rows.schema.names))
                schema = _only(step.inputs[0].rows.schema, wanted)
                self._begin_chain(step, ByKey(keys), build(schema), schema)
            case Write(sink):
                uid, draft = self._node_of(step.inputs[0])
                schema = step.inputs[0].rows.schema
                node = SinkNode(step.uid, sink, schema, step.name)
                self._put(step.uid, _Draft(draft.chain, schema, lambda _: node))
                self._drafts[uid].connect(step.inputs[0].tag, InChain(step.uid))

    def _place_source(self, step: Step, read: Read) -> None:
        source, event_time = read.source, read.watermarks.event_time if read.watermarks else None
        columns = self._needed[step.uid] | ({event_time} if event_time else set())
        columns = columns or {source.schema.names[0]}
        if isinstance(source, ProjectableSource) and columns != set(source.schema.names):
            source = source.project(frozenset(columns))
        with_origin = self._wants_origin[step.uid]

        def make(outputs: dict[str, Sequence[Target]], source: Source = source) -> Node:
            return SourceNode(
                step.uid, source, read.watermarks, outputs, with_origin, step.name, read.rate_per_s
            )

        chain = len(self._heads)
        self._heads.append(step.uid)
        self._put(step.uid, _Draft(chain, source.schema, make))
        self._placed[step.uid] = step.uid
        sink = source.dead_letter_sink() if isinstance(source, DeadLetterSource) else None
        if sink is not None:
            uid = f"{step.uid}.{DEAD_LETTERS}"
            sink.check(DEAD_LETTER_SCHEMA, uid)
            self._drafts[uid] = _Draft(
                chain, DEAD_LETTER_SCHEMA, lambda _: SinkNode(uid, sink, DEAD_LETTER_SCHEMA, "dead letters")
            )
            self._drafts[step.uid].connect(DEAD_LETTERS, InChain(uid))

    def _place_expression(self, step: Step, express: Express) -> None:
        run = self._runs.pop(step.inputs[0].step.uid, None) or _Run(step.inputs[0], [], step.uid, [])
        run.steps.append(express.step)
        run.names.append(step.name)
        consumers = self._consumers[step.uid]
        if len(consumers) == 1 and isinstance(consumers[0][0].work, Express):
            self._runs[step.uid] = run
            return
        schema = self._narrowed(step.rows.schema, step)
        self._add_expressions(run.start, run.uid, ", ".join(run.names), run.steps, schema)
        self._placed[step.uid] = run.uid

    def _begin_chain(
        self,
        step: Step,
        partitioning: Partitioning,
        built: Built,
        schema_in: pa.Schema,
    ) -> None:
        """A chain that begins with this step, and an edge from each of its inputs."""
        chain = len(self._heads)
        for number, source in enumerate(self._feeders(step.inputs)):
            _, draft = self._node_of(source)
            tag = source.tag
            if self._schema_of(source) != schema_in:
                uid = f"{step.uid}.columns" + (f"-{number + 1}" if number else "")
                self._add_expressions(source, uid, "columns", [], schema_in)
                draft, tag = self._drafts[uid], MAIN
            edge = Edge(
                edge_id=len(self._edges),
                upstream=draft.chain,
                downstream=chain,
                partitioning=partitioning,
                schema=schema_in,
                has_event_time=source.rows.has_event_time,
                with_origin=self._with_origin(step, source),
                has_kinds=source.tag == MAIN and source.step.uid in self._has_kinds,
            )
            self._edges.append(edge)
            draft.connect(tag, ToEdge(edge.edge_id))
        self._heads.append(step.uid)
        sides = {t: r.schema for t, r in step.outputs.items() if t != MAIN}
        schema, state = built.schema, built.state
        if isinstance(step.work, Keyed) and state is not None:
            state = with_key_expressions(state, step.work.key_expressions)

        def make(outputs: dict[str, Sequence[Target]]) -> Node:
            return OperatorNode(step.uid, step.name, built.create, schema, outputs, sides, state=state)

        self._put(step.uid, _Draft(chain, schema, make))
        self._placed[step.uid] = step.uid

    def _with_origin(self, step: Step, source: Input) -> bool:
        is_function = isinstance(step.work, Keyed) and step.work.is_per_record
        is_wanted = is_function or (not isinstance(step.work, Keyed) and self._wants_origin[step.uid])
        return is_wanted and source.tag == MAIN and self._has_origin[source.step.uid]

    def _feeders(self, inputs: Sequence[Input]) -> list[Input]:
        """The inputs, a union that needs no chain of its own replaced by what it is a union of."""
        return [
            feeder
            for source in inputs
            for feeder in (
                self._feeders(source.step.inputs)
                if isinstance(source.step.work, Merge) and source.step.uid not in self._placed
                else [source]
            )
        ]

    # --- Nodes ---

    def _put(self, uid: str, draft: _Draft) -> None:
        """Raises GraphError if a uid is given that is derived here (X.columns, X.dead-letters)."""
        if uid in self._drafts:
            raise GraphError(f"uid {uid!r} is also derived for another operator: give yours another name")
        self._drafts[uid] = draft

    def _schema_of(self, source: Input) -> pa.Schema:
        """The columns that really come; side outputs keep all of theirs."""
        return self._node_of(source)[1].schema if source.tag == MAIN else source.rows.schema

    def _node_of(self, source: Input) -> tuple[str, _Draft]:
        uid = self._placed[source.step.uid]
        return uid, self._drafts[uid]

    def _add_behind(
        self,
        source: Input,
        uid: str,
        name: str,
        built: Built,
        delay_ms: int = 0,
        sides: Mapping[str, pa.Schema] | None = None,
    ) -> None:
        """A node in the chain of its input, in the same call stack."""
        _, upstream = self._node_of(source)
        upstream.connect(source.tag, InChain(uid))

        def make(outputs: dict[str, Sequence[Target]]) -> Node:
            return OperatorNode(uid, name, built.create, built.schema, outputs, sides or {}, delay_ms)

        self._put(uid, _Draft(upstream.chain, built.schema, make))

    def _add_expressions(
        self, source: Input, uid: str, name: str, steps: list[expressions.Step], schema: pa.Schema
    ) -> None:
        create = partial(_expressions, tuple(expressions.prune(steps, schema.names)), schema)
        self._add_behind(source, uid, name, Built(create, schema))

    def _narrowed(self, schema: pa.Schema, step: Step) -> pa.Schema:
        return _only(schema, self._needed[step.uid])


def _only(schema: pa.Schema, names: set[str]) -> pa.Schema:
    """These columns in the schema's order; one at least, since rows without columns can't be counted."""
    return pa.schema([f for f in schema if f.name in names] or [schema.field(0)])


def _expressions(steps: tuple[expressions.Step, ...], schema: pa.Schema) -> Operator:
    return Stateless(expressions.Expressions(steps, schema))


def _identity() -> Operator:
    return Stateless(pass_on)
