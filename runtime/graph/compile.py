"""From the steps of a program to the job graph: what runs in one call stack, what crosses an exchange.

Pure: the same steps give the same graph. Four passes: which columns each step must give (so that the
source decodes no others and the exchange carries no others), which rows must say where they came from,
where chains begin, and last the frozen graph.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import pyarrow as pa

from onceflow.runtime.contracts import DEAD_LETTER_SCHEMA, DeadLetterSource, ProjectableSource, Source
from onceflow.runtime.errors import GraphError
from onceflow.runtime.graph.drafts import Draft, Incoming, Run, partitioning_of
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
from onceflow.runtime.graph.needed_columns import find_needed_columns, find_origin, has_origin, read_columns
from onceflow.runtime.graph.node_parts import described, expressions_operator, identity, loop_end, only
from onceflow.runtime.graph.step_rules import find_changelogs, refuse_loose_ends
from onceflow.runtime.graph.steps import (
    Built,
    Call,
    Express,
    Input,
    Keyed,
    LoopHead,
    LoopTail,
    Merge,
    Read,
    Route,
    Step,
    TwoInputs,
    Write,
)
from onceflow.runtime.operators import expressions
from onceflow.runtime.operators.operator import MAIN

DEAD_LETTERS = "dead-letters"


def compile_graph(job: str, steps: Sequence[Step], max_parallelism: int) -> JobGraph:
    """The graph of these steps, which are in the order in which they were written (inputs first).

    Raises GraphError if there is nothing to run, if a step's rows go nowhere, or if one gets updates and
    deletes and does not know them.
    """
    refuse_loose_ends(job, steps)
    return _Compiler(job, steps).run(max_parallelism)


class _Compiler:
    def __init__(self, job: str, steps: Sequence[Step]) -> None:
        self._job = job
        self._steps = steps
        self._consumers: dict[str, list[tuple[Step, str]]] = {s.uid: [] for s in steps}
        for step in steps:
            for source in step.inputs:
                self._consumers[source.step.uid].append((step, source.tag))
        self._needed = find_needed_columns(steps, self._consumers)
        self._wants_origin = find_origin(steps)
        self._has_kinds = find_changelogs(steps)
        self._has_origin: dict[str, bool] = {}
        self._drafts: dict[str, Draft] = {}
        self._placed: dict[str, str] = {}  # step uid -> uid of the node with its rows
        self._runs: dict[str, Run] = {}
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

    # --- Chains and edges ---

    def _place(self, step: Step) -> None:
        self._has_origin[step.uid] = has_origin(step, self._wants_origin, self._has_origin)
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
            case Merge() | Route():
                self._place_regrouping(step)
            case Keyed(keys=keys, build=build):
                schema = self._read_schema(step, 0)
                self._begin_chain(step, [Incoming(step.inputs, ByKey(keys), schema)], build(schema))
            case TwoInputs(build=build_of_two):
                left, right = self._read_schema(step, 0), self._read_schema(step, 1)
                incoming = [
                    Incoming([source], partitioning_of(side), schema)
                    for side, source, schema in zip(step.work.sides, step.inputs, (left, right), strict=True)
                ]
                self._begin_chain(step, incoming, build_of_two(left, right))
            case LoopHead():
                schema = step.rows.schema
                self._begin_chain(step, [Incoming(step.inputs, Forward(), schema)], loop_end(step))
            case LoopTail():
                self._add_behind(step.inputs[0], step.uid, step.name, loop_end(step))
            case Write(sink):
                uid, draft = self._node_of(step.inputs[0])
                schema = step.inputs[0].rows.schema
                node = SinkNode(step.uid, sink, schema, step.name)
                self._put(step.uid, Draft(draft.chain, schema, lambda _: node))
                self._drafts[uid].connect(step.inputs[0].tag, InChain(step.uid))

    def _place_regrouping(self, step: Step) -> None:
        """A union, or the same rows in other subtasks."""
        schema = self._narrowed(step.rows.schema, step)
        how: Partitioning = Forward()
        if isinstance(step.work, Route):
            how = ByKey(step.work.keys) if step.work.keys else Rebalance()
        elif all(
            isinstance(consumer.work, Keyed | TwoInputs | Merge | Route | LoopHead)
            for consumer, _ in self._consumers[step.uid]
        ):
            return  # whoever reads the union begins a chain, and gets edges from all that it is a union of
        self._begin_chain(step, [Incoming(step.inputs, how, schema)], Built(identity, schema))

    def _place_source(self, step: Step, read: Read) -> None:
        source, times = read.source, read.watermarks
        of_time = () if times is None else (times.event_time, times.marker)
        columns = self._needed[step.uid] | {name for name in of_time if name is not None}
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
        self._put(step.uid, Draft(chain, source.schema, make))
        self._placed[step.uid] = step.uid
        sink = source.dead_letter_sink() if isinstance(source, DeadLetterSource) else None
        if sink is not None:
            uid = f"{step.uid}.{DEAD_LETTERS}"
            sink.check(DEAD_LETTER_SCHEMA, uid)
            self._drafts[uid] = Draft(
                chain, DEAD_LETTER_SCHEMA, lambda _: SinkNode(uid, sink, DEAD_LETTER_SCHEMA, "dead letters")
            )
            self._drafts[step.uid].connect(DEAD_LETTERS, InChain(uid))

    def _place_expression(self, step: Step, express: Express) -> None:
        run = self._runs.pop(step.inputs[0].step.uid, None) or Run(step.inputs[0], [], step.uid, [])
        run.steps.append(express.step)
        run.names.append(step.name)
        consumers = self._consumers[step.uid]
        if len(consumers) == 1 and isinstance(consumers[0][0].work, Express):
            self._runs[step.uid] = run
            return
        schema = self._narrowed(step.rows.schema, step)
        self._add_expressions(run.start, run.uid, ", ".join(run.names), run.steps, schema)
        self._placed[step.uid] = run.uid

    def _begin_chain(self, step: Step, inputs: Sequence[Incoming], built: Built) -> None:
        """A chain that begins with this step, and edges from all that feed each of its inputs."""
        chain, number = len(self._heads), 0
        for input, incoming in enumerate(inputs):
            for source in self._feeders(incoming.sources):
                number += 1
                self._add_edge(step, chain, input, incoming, source, number)
        self._heads.append(step.uid)
        sides = {t: r.schema for t, r in step.outputs.items() if t != MAIN}
        schema, state, delay_ms = built.schema, described(step.work, built.state), 0
        if isinstance(step.work, TwoInputs):
            delay_ms = step.work.delays_watermark_ms

        def make(outputs: dict[str, Sequence[Target]]) -> Node:
            return OperatorNode(
                step.uid, step.name, built.create, schema, outputs, sides, delay_ms, state, built.readers
            )

        self._put(step.uid, Draft(chain, schema, make))
        self._placed[step.uid] = step.uid

    def _add_edge(
        self, step: Step, chain: int, input: int, incoming: Incoming, source: Input, number: int
    ) -> None:
        """`number`: of the edge among all that lead to this chain, from 1 on."""
        _, draft = self._node_of(source)
        tag = source.tag
        if self._schema_of(source) != incoming.schema:
            uid = f"{step.uid}.columns" + (f"-{number}" if number > 1 else "")
            self._add_expressions(source, uid, "columns", [], incoming.schema)
            draft, tag = self._drafts[uid], MAIN
        edge = Edge(
            edge_id=len(self._edges),
            upstream=draft.chain,
            downstream=chain,
            partitioning=incoming.partitioning,
            schema=incoming.schema,
            has_event_time=source.rows.has_event_time,
            with_origin=self._with_origin(step, source),
            has_kinds=source.tag == MAIN and source.step.uid in self._has_kinds,
            input=input,
        )
        self._edges.append(edge)
        draft.connect(tag, ToEdge(edge.edge_id))

    def _with_origin(self, step: Step, source: Input) -> bool:
        is_function = isinstance(step.work, Keyed | TwoInputs) and step.work.is_per_record
        is_wanted = is_function or (
            not isinstance(step.work, Keyed | TwoInputs) and self._wants_origin[step.uid]
        )
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

    def _put(self, uid: str, draft: Draft) -> None:
        """Raises GraphError if a uid is given that is derived here (X.columns, X.dead-letters)."""
        if uid in self._drafts:
            raise GraphError(f"uid {uid!r} is also derived for another operator: give yours another name")
        self._drafts[uid] = draft

    def _schema_of(self, source: Input) -> pa.Schema:
        """The columns that really come; side outputs keep all of theirs."""
        return self._node_of(source)[1].schema if source.tag == MAIN else source.rows.schema

    def _node_of(self, source: Input) -> tuple[str, Draft]:
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
            state, readers = built.state, built.readers
            return OperatorNode(
                uid, name, built.create, built.schema, outputs, sides or {}, delay_ms, state, readers
            )

        self._put(uid, Draft(upstream.chain, built.schema, make))

    def _add_expressions(
        self, source: Input, uid: str, name: str, steps: list[expressions.Step], schema: pa.Schema
    ) -> None:
        create = partial(expressions_operator, tuple(expressions.prune(steps, schema.names)), schema)
        self._add_behind(source, uid, name, Built(create, schema))

    def _narrowed(self, schema: pa.Schema, step: Step) -> pa.Schema:
        return only(schema, self._needed[step.uid])

    def _read_schema(self, step: Step, number: int) -> pa.Schema:
        """The columns that a stateful step gets of its input of this number."""
        given = step.inputs[number].rows.schema
        wanted, all_of = self._needed[step.uid], set(given.names)
        return only(given, read_columns(step, number, wanted, all_of, self._consumers))
