"""A real driver in the simulation: coordinator, store I/O and slot group, moved by the world."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence

from onceflow.runtime.checkpoint import events as ev
from onceflow.runtime.checkpoint.coordinator import Coordinator
from onceflow.runtime.checkpoint.driver import CheckpointIO, IoEffect
from onceflow.runtime.checkpoint.manifest import CheckpointManifest
from onceflow.runtime.checkpoint.options import CheckpointOptions
from onceflow.runtime.checkpoint.staged_files import PromisedStagedFiles
from onceflow.runtime.checkpoint.store import CheckpointStore
from onceflow.runtime.clock import ManualClock
from onceflow.runtime.control.commands import command_of
from onceflow.runtime.control.message import Message
from onceflow.runtime.control.messages import Hello, ToDriver
from onceflow.runtime.driver.committers import Committers
from onceflow.runtime.driver.enumerators import Enumerators
from onceflow.runtime.driver.graph_program import program_of
from onceflow.runtime.graph.job_graph import JobGraph
from onceflow.runtime.slot.group import SlotGroup, assignments

Mail = ToDriver | None
"""A slot's message; None: its connection has ended."""


class SimDriver:
    """What `runtime/driver/driver.py` does with threads and sockets, in queues: one for each sender."""

    def __init__(
        self,
        graph: JobGraph,
        store: CheckpointStore,
        clock: ManualClock,
        parallelism: int,
        options: CheckpointOptions,
        start_slots: Callable[[SimDriver, int], Sequence[int]],
        tell: Callable[[int, Message], bool],
        on_mark: Callable[[str], None],
    ) -> None:
        """`start_slots(self, attempt)` makes the slots and gives their peer numbers."""
        self._clock = clock
        self._start_slots = start_slots
        self._tell = tell
        self.parallelism = parallelism
        enumerators = Enumerators(graph, clock)
        program = program_of(graph)
        committers = Committers(graph, clock, PromisedStagedFiles(store))
        self.io = CheckpointIO(store, clock, enumerators, committers, program, parallelism, options.retained)
        self.coordinator = Coordinator(
            parallelism, graph.max_parallelism, options, on_mark=on_mark, has_committers=bool(committers)
        )
        self.io_effects: deque[IoEffect] = deque()
        self.answers: deque[ev.Event] = deque()
        """Answers of the store, and of the host that misses a slot."""
        self.mail: dict[int, deque[Mail]] = {}
        """What each peer said; what it said last is heard last."""
        self.group: SlotGroup | None = None
        self.finished: ev.FinishJob | None = None

    def __repr__(self) -> str:
        return f"driver of {self.coordinator!r}"

    def start(self) -> None:
        self._carry_out(self.coordinator.start(self._now_ms()))

    def handle(self, event: ev.Event) -> None:
        self._carry_out(self.coordinator.handle(event, self._now_ms()))

    def run_io(self) -> None:
        """The oldest effect on the store; its answer is heard later."""
        answer = self.io.execute(self.io_effects.popleft())
        if answer is not None:
            self.answers.append(answer)

    def read_answer(self) -> None:
        """The oldest answer."""
        self.handle(self.answers.popleft())

    def read_mail(self, peer: int) -> None:
        """The oldest message of this sender."""
        mail = self.mail[peer].popleft()
        if not self.mail[peer]:
            del self.mail[peer]
        if self.group is None:
            return
        events = self.group.on_lost(peer) if mail is None else self.group.on_message(peer, mail, 0.0)
        for event in events:
            self.handle(event)

    def post(self, peer: int, mail: Mail) -> None:
        self.mail.setdefault(peer, deque()).append(mail)

    def _carry_out(self, effects: Sequence[ev.Effect]) -> None:
        for effect in effects:
            match effect:
                case ev.StartSlots(attempt, manifest):
                    self._launch(attempt, manifest)
                case ev.Rescale(slots):
                    self.parallelism = slots
                    self.io_effects.append(effect)
                case ev.CancelAttempt(_, reason):
                    if self.group is not None:
                        self.group.end(reason)
                case ev.FinishJob():
                    self.finished = effect
                    if self.group is not None:
                        self.group.end("the job has ended")
                case ev.Trigger() | ev.Resume() | ev.Drain() | ev.Commit() | ev.AbortCheckpoint():
                    assert self.group is not None
                    self.group.broadcast(command_of(effect))
                case _ if isinstance(effect, IoEffect):
                    self.io_effects.append(effect)

    def _launch(self, attempt: int, manifest: CheckpointManifest) -> None:
        restored = assignments(attempt, manifest, self.parallelism)
        self.group = SlotGroup(attempt, self.parallelism, restored, self._tell, self._tell_all, 1e12)
        for number, peer in enumerate(self._start_slots(self, attempt)):
            address = ("simulated", peer)
            hello = Hello(
                attempt=attempt, spark_partition=number, pid=peer, host="", data_address=address, version=""
            )
            self.post(peer, hello)

    def _tell_all(self, peers: Iterable[int], message: Message) -> None:
        for peer in peers:
            self._tell(peer, message)

    def _now_ms(self) -> int:
        return round(self._clock.monotonic_ms())
