"""From the job graph and an assignment to the tasks of one slot, restored and wired.

Subtask i of every chain runs in slot i. Everything is made new for each attempt.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from onceflow.runtime.checkpoint.alignment import Alignment
from onceflow.runtime.checkpoint.manifest import StateHandle
from onceflow.runtime.checkpoint.options import BarrierOptions
from onceflow.runtime.clock import Clock
from onceflow.runtime.contracts import (
    AcknowledgingReader,
    ReaderContext,
    SinkContext,
    SinkWriter,
    SourceReader,
    StagedFiles,
)
from onceflow.runtime.contracts.batch_size import OPERATOR_RECORDS_MIN, RECORDS_MAX, BatchSize
from onceflow.runtime.control.messages import Assignment
from onceflow.runtime.errors import Fatal
from onceflow.runtime.exchange.record_writer import RecordWriter
from onceflow.runtime.exchange.wiring import Wiring, record_writer
from onceflow.runtime.functions.context import FunctionContext, function_context
from onceflow.runtime.functions.lives import FunctionLives, Run
from onceflow.runtime.functions.making_calls import calls_of
from onceflow.runtime.functions.metrics import MetricRegistry
from onceflow.runtime.functions.parameters import NO_PARAMS, Parameters
from onceflow.runtime.functions.questions import Calls
from onceflow.runtime.graph.job_graph import Chain, JobGraph, OperatorNode, SinkNode, SourceNode
from onceflow.runtime.graph.ways import restored_uids
from onceflow.runtime.operators.operator import BeginningOperator, Operator, OperatorContext, RestoredState
from onceflow.runtime.slot.call_watch import current_origin
from onceflow.runtime.slot.chain_body import ChainBody
from onceflow.runtime.slot.firing import PIECE_ROWS_MAX
from onceflow.runtime.slot.gates import Gates, MakeAlignment, head_of
from onceflow.runtime.slot.slot_tasks import SlotTasks
from onceflow.runtime.slot.source_rate import SourceRate
from onceflow.runtime.slot.source_task import SourceTask
from onceflow.runtime.slot.task import OperatorTask, Task
from onceflow.runtime.slot.task_reports import TaskCounters, TaskSnapshot
from onceflow.runtime.state.evolution.restored import as_declared
from onceflow.runtime.state.key_groups import key_group_range
from onceflow.runtime.state.overflow import UNLIMITED, StateBackend


@dataclass(frozen=True, slots=True)
class SlotEnvironment:
    """What the tasks of a slot get from outside."""

    clock: Clock
    staged_files: Callable[[str], StagedFiles]
    """The staged files of the writer with this uid."""
    read_states: Callable[[Sequence[tuple[StateHandle, range]]], list[RestoredState]]
    """The state behind each handle, cut down to these key groups."""
    on_snapshot: Callable[[int, TaskSnapshot], None]
    """Task number, its snapshot: called in the middle of the task's step."""
    on_wait: Callable[[str, str], None]
    """(uid, reason): a connector waits for something; from any thread."""
    functions: FunctionLives
    """Where functions of the user's are opened; who made it closes them."""
    params: Parameters = NO_PARAMS
    wake: Callable[[], None] = lambda: None
    """Ends the loop's waiting, from any thread."""
    make_calls: Callable[[Any, int, Callable[[], None]], Calls] = calls_of
    """Who makes the calls of a function that answers later: see functions/making_calls.py."""
    barriers: BarrierOptions = BarrierOptions()  # noqa: RUF009 - it is frozen
    state: StateBackend = UNLIMITED
    checkpoint_interval_ms: int | None = None
    make_alignment: MakeAlignment = Alignment
    rows_max: int = RECORDS_MAX
    """The most rows that an operator gets at once."""
    piece_rows_max: int = PIECE_ROWS_MAX
    """The most windows or timers that fire between two looks at barriers and records."""


class SlotBuilder:
    """Builds the tasks of one slot, once."""

    def __init__(
        self, graph: JobGraph, assignment: Assignment, wiring: Wiring, environment: SlotEnvironment
    ) -> None:
        self._graph = graph
        self._assignment = assignment
        self._wiring = wiring
        self._environment = environment
        self._key_groups = key_group_range(graph.max_parallelism, assignment.parallelism, assignment.slot)
        self._readers: dict[str, SourceReader] = {}
        self._writers: dict[str, SinkWriter] = {}
        self._operators: dict[str, Operator] = {}
        self._sources: dict[str, SourceTask] = {}
        self._metrics = MetricRegistry(environment.clock)
        self._shared: dict[str, Any] = {}
        """What operators of this slot have in common, by name."""
        self._restored: dict[str, list[RestoredState]] = {}
        """What was read and is not taken yet, by uid."""

    def build(self) -> SlotTasks:
        """Open everything, restore state and add the splits. Raises what connectors and files raise;
        then what was opened is closed again."""
        tasks: list[Task] = []
        try:
            self._read_states()
            for number, chain in enumerate(self._graph.chains):
                tasks.append(self._task(number, chain))
        except BaseException:
            self._tasks(tasks).close()
            raise
        return self._tasks(tasks)

    def _tasks(self, tasks: list[Task]) -> SlotTasks:
        heads = [chain.head for chain in self._graph.chains]
        return SlotTasks(
            tasks, heads, self._sources, self._readers, self._writers, self._operators, self._metrics
        )

    def _task(self, number: int, chain: Chain) -> Task:
        counters = TaskCounters()
        slot, groups = self._assignment.slot, self._graph.max_parallelism
        edges: dict[int, RecordWriter] = {
            edge.edge_id: record_writer(edge, self._wiring, slot, groups)
            for edge in self._graph.edges_out_of(chain.chain_id)
        }
        writers = {n.uid: self._writer(n) for n in chain.nodes.values() if isinstance(n, SinkNode)}
        operators = {n.uid: n.create() for n in chain.nodes.values() if isinstance(n, OperatorNode)}
        self._operators |= operators
        environment = self._environment
        body = ChainBody(
            chain, operators, writers, edges, counters, environment.clock, environment.piece_rows_max
        )
        for uid, operator in operators.items():
            node = chain.nodes[uid]
            assert isinstance(node, OperatorNode)
            operator.open(self._operator_context(uid, counters), body.outlet(node.outputs))
            self._restore(uid, operator)
            if isinstance(operator, BeginningOperator):
                operator.begin()

        def on_snapshot(snapshot: TaskSnapshot) -> None:
            self._environment.on_snapshot(number, snapshot)

        head = chain.nodes[chain.head]
        if isinstance(head, SourceNode):
            return self._source_task(head, body, counters, on_snapshot)
        into = self._graph.edges_into(chain.chain_id)
        channels = [(edge, channel) for edge in into for channel in self._wiring.inputs(edge)]
        gates = Gates(self._graph, self._key_groups, environment.barriers, self._states_of)
        gate, overtaking = gates.gate(channels, environment.make_alignment), gates.overtaking(channels)
        rows_to = head_of(gate, body, chain)
        size = BatchSize(environment.rows_max, least=OPERATOR_RECORDS_MIN)
        return OperatorTask(gate, rows_to, body, counters, on_snapshot, environment.clock, size, overtaking)

    def _source_task(
        self,
        node: SourceNode,
        body: ChainBody,
        counters: TaskCounters,
        on_snapshot: Callable[[TaskSnapshot], None],
    ) -> SourceTask:
        clock = self._environment.clock
        reader = node.source.open_reader(
            ReaderContext(
                job=self._graph.job,
                uid=node.uid,
                subtask=self._assignment.slot,
                attempt=self._assignment.attempt,
                clock=clock,
                with_origin=node.with_origin,
                with_timestamp=node.watermarks is not None and node.watermarks.needs_timestamp,
                on_wait=lambda reason: self._environment.on_wait(node.uid, reason),
                wake=self._environment.wake,
                checkpoint_interval_ms=self._environment.checkpoint_interval_ms,
            )
        )
        self._readers[node.uid] = reader
        if not node.leaves_traces and isinstance(reader, AcknowledgingReader):
            raise Fatal(
                f"source {node.uid!r}: a dry run would take its messages away from the job that they are "
                "for: use a source that can be read again"
            )
        limit = node.rate_per_s
        rate = None if limit is None else SourceRate(limit, self._assignment.parallelism)
        halts = self._environment.barriers.halts
        task = SourceTask(node, reader, body, clock, counters, on_snapshot, rate, halts)
        task.add_splits(self._assignment.splits.get(node.uid, ()))
        self._sources[node.uid] = task
        return task

    def _writer(self, node: SinkNode) -> SinkWriter:
        writer = node.sink.open_writer(
            SinkContext(
                job=self._graph.job,
                lineage=self._assignment.lineage,
                uid=node.uid,
                subtask=self._assignment.slot,
                parallelism=self._assignment.parallelism,
                attempt=self._assignment.attempt,
                restored_checkpoint_id=self._assignment.restored_checkpoint_id,
                files=self._environment.staged_files(node.uid),
                clock=self._environment.clock,
                schema=node.schema,
                on_wait=lambda reason: self._environment.on_wait(node.uid, reason),
                checkpoint_interval_ms=self._environment.checkpoint_interval_ms,
                went_back=self._assignment.went_back,
                open_function=lambda function: self._open_function(node.uid, function),
            )
        )
        self._writers[node.uid] = writer
        return writer

    def _operator_context(self, uid: str, counters: TaskCounters) -> OperatorContext:
        def count_late(rows: int) -> None:
            counters.late_records += rows

        has_failed = False

        def count_failed(rows: int, said: str) -> None:
            nonlocal has_failed
            counters.failed_records += rows
            if not has_failed:
                has_failed = True
                self._function_context(uid).log.warning("%s; the next ones are only counted", said)

        return OperatorContext(
            uid=uid,
            subtask=self._assignment.slot,
            parallelism=self._assignment.parallelism,
            max_parallelism=self._graph.max_parallelism,
            key_groups=self._key_groups,
            clock=self._environment.clock,
            count_late=count_late,
            count_failed=count_failed,
            redact=self._environment.params.redact,
            open_function=lambda function, run=None: self._open_function(uid, function, run),
            calls=lambda function, n: self._environment.make_calls(function, n, self._environment.wake),
            state=self._environment.state,
            shared_objects=self._shared,
        )

    def _open_function(self, uid: str, function: Any, run: Run | None = None) -> None:
        self._environment.functions.open(function, self._function_context(uid), run)

    def _function_context(self, uid: str) -> FunctionContext:
        at, params = self._assignment, self._environment.params
        return function_context(
            self._graph.job, uid, at.slot, at.parallelism, at.attempt, params, current_origin, self._metrics
        )

    def _restore(self, uid: str, operator: Operator) -> None:
        if states := self._states_of(uid):
            operator.restore(states)

    def _read_states(self) -> None:
        """Read all files that the slot needs through: together, since each may be far away."""
        uids = restored_uids(self._graph)
        handles = [handle for handle in self._assignment.states if handle.uid in uids]
        mine = [
            self._key_groups if self._graph.has_keyed_state(handle.uid) else handle.key_groups
            for handle in handles
        ]
        found = self._environment.read_states(list(zip(handles, mine, strict=True)))
        for handle, state in zip(handles, found, strict=True):
            self._restored.setdefault(handle.uid, []).append(state)

    def _states_of(self, uid: str) -> list[RestoredState]:
        """What is restored; asked for once, so that it is let go of as soon as it was taken."""
        readers = self._graph.readers(uid)
        return [as_declared(state, readers, uid) for state in self._restored.pop(uid, ())]
