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
from onceflow.runtime.slot.assignments import assignments
from onceflow.runtime.slot.group import SlotGroup
from onceflow.runtime.slot.warm_slots import LaunchedSlots, WarmSlots

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
        start_slots: Callable[[SimDriver, int, int], Sequence[int]],
        tell: Callable[[int, Message], bool],
        on_mark: Callable[[str], None],
    ) -> None:
        """`start_slots(self, attempt, number)` makes so many slots and gives their peer numbers."""
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
        self.has_room_for_both = True
        """Whether slots can come up for the next attempt while those of this one run."""
        self._warm = WarmSlots()
        self._launches = 0
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
        for event in self._heard(self.group, peer, mail):
            self.handle(event)

    def _heard(self, group: SlotGroup | None, peer: int, mail: Mail) -> Sequence[ev.Event]:
        if mail is None:
            return (group.on_lost(peer) if group is not None else []) or self._warm.on_lost(peer)
        if self._warm.is_from_them(mail):
            return self._warm.on_message(peer, mail, 0.0)
        return [] if group is None else group.on_message(peer, mail, 0.0)

    def post(self, peer: int, mail: Mail) -> None:
        self.mail.setdefault(peer, deque()).append(mail)

    def _carry_out(self, effects: Sequence[ev.Effect]) -> None:
        for effect in effects:
            match effect:
                case ev.StartSlots(attempt, manifest):
                    self._begin(attempt, manifest)
                case ev.WarmSlots(attempt, slots):
                    self._warm_up(attempt, slots)
                case ev.Rescale(slots):
                    self.parallelism = slots
                    self.io_effects.append(effect)
                case ev.CancelAttempt(_, reason):
                    self._end_attempt(reason)
                case ev.FinishJob():
                    self.finished = effect
                    self._warm.end("the job has ended")
                    self._end_attempt("the job has ended")
                case ev.Trigger() | ev.Resume() | ev.Drain() | ev.Commit() | ev.AbortCheckpoint():
                    assert self.group is not None
                    self.group.broadcast(command_of(effect))
                case _ if isinstance(effect, IoEffect):
                    self.io_effects.append(effect)

    def _end_attempt(self, reason: str) -> None:
        if self.group is not None:
            self.group.end(reason)

    def _begin(self, attempt: int, manifest: CheckpointManifest) -> None:
        slots = self.parallelism
        launched = self._warm.take(attempt, slots) or self._launch(attempt, slots)
        self.group = launched.group
        self.group.begin(assignments(attempt, manifest, slots, self.io.attempt_entry), 0.0)

    def _warm_up(self, attempt: int, slots: int) -> None:
        self._warm.end("another number of slots is wanted")
        if slots == 0:
            return
        if self.has_room_for_both:
            self._warm.expect(self._launch(attempt + 1, slots))
        else:
            self.answers.append(ev.SlotsWarmed(attempt, 0))

    def _launch(self, attempt: int, slots: int) -> LaunchedSlots:
        self._launches += 1
        group = SlotGroup(attempt, self._launches, slots, self._tell, self._tell_all, 1e12)
        for number, peer in enumerate(self._start_slots(self, attempt, slots)):
            address = ("simulated", peer)
            hello = Hello(
                launch=self._launches,
                attempt=attempt,
                spark_partition=number,
                pid=peer,
                host="",
                data_address=address,
                version="",
            )
            self.post(peer, hello)
        return LaunchedSlots(group, lambda: None)

    def _tell_all(self, peers: Iterable[int], message: Message) -> None:
        for peer in peers:
            self._tell(peer, message)

    def _now_ms(self) -> int:
        return round(self._clock.monotonic_ms())
