"""A real Slot in the simulation: its control, background and channels are queues that the world moves."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, runtime_checkable

from onceflow.runtime.checkpoint.alignment import Alignment
from onceflow.runtime.checkpoint.manifest import StateHandle
from onceflow.runtime.checkpoint.options import BarrierOptions
from onceflow.runtime.checkpoint.staged_files import AttemptStagedFiles
from onceflow.runtime.checkpoint.state_files import StateFiles
from onceflow.runtime.checkpoint.store import CheckpointStore
from onceflow.runtime.clock import Clock
from onceflow.runtime.contracts.batch_size import RECORDS_MAX
from onceflow.runtime.control.message import Message
from onceflow.runtime.control.messages import Assignment, ToSlot
from onceflow.runtime.exchange.channel import InputChannel, OutputChannel
from onceflow.runtime.functions.lives import FunctionLives
from onceflow.runtime.functions.parameters import NO_PARAMS, Parameters
from onceflow.runtime.graph.job_graph import Edge, Forward, JobGraph
from onceflow.runtime.operators.operator import FrozenState
from onceflow.runtime.records import Barrier, Element
from onceflow.runtime.slot.firing import PIECE_ROWS_MAX
from onceflow.runtime.slot.slot import STEPS_PER_TASK, Slot
from onceflow.runtime.slot.slot_tasks import SlotTasks
from onceflow.runtime.slot.tasks import SlotBuilder, SlotEnvironment
from onceflow.runtime.state.key_groups import key_group_range
from onceflow.runtime.state.overflow import UNLIMITED, StateBackend
from onceflow.runtime.testing.shared_files import SharedFiles
from onceflow.runtime.testing.sim_calls import Choose, SimCalls

Result = TypeVar("Result")
Jobs = deque[tuple[Callable[[], Any], Callable[[Any], None]]]


@runtime_checkable
class PacedReader(Protocol):
    """A reader that polls once for each credit, so that other things happen between two batches."""

    credit: int

    @property
    def has_more(self) -> bool:
        """Whether a poll would bring something."""
        ...


class SimChannel:
    """Elements are in flight until the world delivers them; order is kept."""

    def __init__(self) -> None:
        self.in_flight: deque[Element] = deque()
        self.delivered: deque[Element] = deque()
        self.receiver: SimSlot | None = None

    has_room = True
    bound_bytes = 1 << 20
    is_slow = False
    sent_bytes = 0

    def send(self, element: Element) -> None:
        self.in_flight.append(element)

    def receive(self) -> Element | None:
        return self.delivered.popleft() if self.delivered else None

    def waiting(self) -> Sequence[Element]:
        return list(self.delivered)

    @property
    def waiting_barriers(self) -> Sequence[int]:
        return [element.checkpoint_id for element in self.delivered if isinstance(element, Barrier)]

    def deliver(self, count: int) -> None:
        for _ in range(count):
            self.delivered.append(self.in_flight.popleft())
        if self.receiver is not None:
            self.receiver.is_idle = False


class SimWiring:
    """The channels of one attempt; attempts never share one, as the real exchange's token sees to."""

    def __init__(self, parallelism: int) -> None:
        self._parallelism = parallelism
        self.channels: dict[tuple[int, int, int], SimChannel] = {}

    def of_slot(self, slot: SimSlot, number: int) -> SlotOfSimWiring:
        return SlotOfSimWiring(self, slot, number)

    def channel(self, edge_id: int, upstream: int, downstream: int) -> SimChannel:
        return self.channels.setdefault((edge_id, upstream, downstream), SimChannel())


class SlotOfSimWiring:
    """wiring.Wiring for one slot."""

    def __init__(self, wiring: SimWiring, slot: SimSlot, number: int) -> None:
        self._wiring = wiring
        self._slot = slot
        self._number = number

    def outputs(self, edge: Edge) -> Sequence[OutputChannel]:
        return [self._wiring.channel(edge.edge_id, self._number, other) for other in self._others(edge)]

    def inputs(self, edge: Edge) -> Sequence[InputChannel]:
        channels = [self._wiring.channel(edge.edge_id, other, self._number) for other in self._others(edge)]
        for channel in channels:
            channel.receiver = self._slot
        return channels

    def _others(self, edge: Edge) -> Sequence[int]:
        own_only = isinstance(edge.partitioning, Forward)
        return (self._number,) if own_only else range(self._wiring._parallelism)


class SimBackground:
    """Jobs wait until the world runs them; outcomes wait until the slot's next step."""

    def __init__(self) -> None:
        self.writes: Jobs = deque()
        self.commits: Jobs = deque()
        self._outcomes: deque[Callable[[], None]] = deque()

    def write(self, job: Callable[[], Result], done: Callable[[Result], None]) -> None:
        self.writes.append((job, done))

    def commit(self, job: Callable[[], Result], done: Callable[[Result], None]) -> None:
        self.commits.append((job, done))

    def run(self, jobs: Jobs, index: int) -> None:
        """Run one; what it raises is raised in the slot, as with real threads. `SimCrash` passes."""
        job, done = jobs[index]
        del jobs[index]
        try:
            result = job()
        except Exception as error:
            failed = error

            def raise_it() -> None:
                raise failed

            self._outcomes.append(raise_it)
            return
        self._outcomes.append(lambda: done(result))

    def deliver(self) -> bool:
        delivered = bool(self._outcomes)
        while self._outcomes:
            self._outcomes.popleft()()
        return delivered

    def close(self) -> None:
        pass


@dataclass(frozen=True, slots=True)
class SimSlotOptions:
    """What all slots of a run are like; see WorldOptions."""

    barriers: BarrierOptions = BarrierOptions()  # noqa: RUF009 - it is frozen
    shares_files: bool = False
    rows_max: int = RECORDS_MAX
    piece_rows_max: int = PIECE_ROWS_MAX
    steps_per_task: int = STEPS_PER_TASK
    params: Parameters = NO_PARAMS
    state: StateBackend = UNLIMITED
    choose: Choose | None = None
    """Chooses which calls of functions that answer later have been answered; None: all."""


class SimSlot:
    """One slot process: starts when its assignment comes, then steps."""

    def __init__(
        self,
        attempt: int,
        peer: int,
        graph: JobGraph,
        wiring: SimWiring,
        store: CheckpointStore,
        clock: Clock,
        send: Callable[[int, Message], None],
        options: SimSlotOptions,
    ) -> None:
        self.attempt = attempt
        self.peer = peer
        self.commands: deque[ToSlot] = deque()
        self.background = SimBackground()
        self.is_idle, self.is_over = True, False
        self.is_deaf = False
        """What the driver says does not come any more."""
        self.frozen_until = 0  # the world's move at which it goes on
        self.number: int | None = None
        self._graph, self._store, self._clock = graph, store, clock
        self.wiring = wiring
        self._send = send
        self._options = options
        self._slot: Slot | None = None
        self._readers: dict[str, PacedReader] = {}
        self._tasks: SlotTasks | None = None
        self.notices: list[str] = []
        """What went wrong while functions were closed."""
        self._lives = FunctionLives(self.notices.append)

    def __repr__(self) -> str:
        return f"slot {self.number} of attempt {self.attempt}"

    def poll(self) -> ToSlot | None:
        return self.commands.popleft() if self.commands else None

    def send(self, message: Message) -> None:
        self._send(self.peer, message)

    # --- What the world calls

    @property
    def can_step(self) -> bool:
        return not self.is_over and (not self.is_idle or any(map(self._may_read, self._readers)))

    def _may_read(self, uid: str) -> bool:
        """Whether this source has more, and would take it."""
        assert self._tasks is not None
        return self._readers[uid].has_more and self._tasks.sources[uid].may_read

    @property
    def wake_at_ms(self) -> int | None:
        return None if self._tasks is None else self._tasks.wake_at_ms  # see SlotTasks

    def tell(self, command: ToSlot) -> None:
        if not self.is_deaf:
            self.commands.append(command)
            self.is_idle = False

    def step(self) -> None:
        """Start, or do what there is to do. Raises what the real slot raises, its functions closed."""
        try:
            self._step()
        except Exception:
            self.close_functions()
            raise

    def _step(self) -> None:
        if self._slot is None:
            if isinstance(command := self.poll(), Assignment):
                self._slot = self._start(command)
            elif command is not None:
                self.is_over = True  # Shutdown before the start
            return
        for reader in self._readers.values():
            reader.credit = 1
        self.is_idle = not self._slot.step()
        self.is_over = self._slot.shutdown_reason is not None

    def counter(self, name: str) -> int:
        """A counter of TaskCounters, summed over the tasks."""
        return sum(t.counters.as_dict()[name] for t in (self._tasks.tasks if self._tasks else ()))

    def close(self) -> None:
        """Let go of what tasks have opened. A process that is killed does not."""
        if self._tasks is not None:
            self._tasks.close()
        self.close_functions()

    def close_functions(self) -> None:  # the attempt has ended here, and the process goes on
        self._lives.close()

    def _start(self, assignment: Assignment) -> Slot:
        self.number, store, at, options = assignment.slot, self._store, assignment, self._options
        files = StateFiles(store, assignment.attempt, at_once=1)
        mine = key_group_range(self._graph.max_parallelism, assignment.parallelism, assignment.slot)
        writer = SharedFiles(files, mine, assignment.states) if options.shares_files else files

        def write_state(checkpoint_id: int, uid: str, state: FrozenState) -> StateHandle:
            return writer.write(checkpoint_id, uid, at.slot, state)

        slot = Slot(at, self, self.background, self._clock, write_state, options.steps_per_task, 0.0)
        environment = SlotEnvironment(
            clock=self._clock,
            staged_files=lambda uid: AttemptStagedFiles(store, at.attempt, uid, at.slot),
            read_states=files.read_all,
            on_snapshot=slot.on_snapshot,
            on_wait=slot.waiting_for,
            barriers=options.barriers,
            make_alignment=Alignment,
            rows_max=options.rows_max,
            piece_rows_max=options.piece_rows_max,
            functions=self._lives,
            state=options.state,
            params=options.params,
            make_calls=lambda function, at_once_max, wake: SimCalls(function, options.choose),
        )
        wiring = self.wiring.of_slot(self, at.slot)
        self._tasks = tasks = SlotBuilder(self._graph, at, wiring, environment).build()
        self._readers = {uid: r for uid, r in tasks.readers.items() if isinstance(r, PacedReader)}
        slot.start(tasks)
        return slot
