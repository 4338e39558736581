"""World: a job, its drivers, slots, store and broker in one thread; every move is a choice.

What survives a crash is the store and the broker. Drivers and slots are real code (Coordinator,
CheckpointIO, SlotGroup, Slot, tasks, gates, alignment, recovery) whose queues the world moves, one
message, job or step at a time. A crash can hit between any two moves and inside every call of broker
and store.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from onceflow.runtime.checkpoint import events as ev
from onceflow.runtime.checkpoint.events import Outcome
from onceflow.runtime.checkpoint.job_phase import JobPhase
from onceflow.runtime.checkpoint.memory_store import MemoryStore
from onceflow.runtime.checkpoint.options import BarrierOptions, CheckpointOptions
from onceflow.runtime.checkpoint.restart import FixedDelay
from onceflow.runtime.clock import ManualClock
from onceflow.runtime.contracts.batch_size import RECORDS_MAX
from onceflow.runtime.control.message import Message
from onceflow.runtime.errors import OnceflowError
from onceflow.runtime.functions.parameters import NO_PARAMS, Parameters
from onceflow.runtime.graph.job_graph import JobGraph
from onceflow.runtime.slot.failure import failure
from onceflow.runtime.slot.firing import PIECE_ROWS_MAX
from onceflow.runtime.slot.slot import STEPS_PER_TASK
from onceflow.runtime.state.overflow import UNLIMITED, StateBackend
from onceflow.runtime.testing.choices import Choices
from onceflow.runtime.testing.faults import FaultyStore
from onceflow.runtime.testing.sim_driver import SimDriver
from onceflow.runtime.testing.sim_slot import Jobs, SimChannel, SimSlot, SimSlotOptions, SimWiring
from onceflow.runtime.testing.sim_store import WatchedStore, WorldChecker, damage
from onceflow.runtime.testing.violations import Breach, Violation

MOVES_MAX = 6_000
ZOMBIE_MOVES_MAX = 80
"""A zombie's moves before it is gone, so that a run ends."""
_FREEZES = (0, 30, 60, 90)
"""Moves of the others before a frozen process goes on."""


class Crash(Enum):
    """What can happen at a crash point."""

    KILL_SLOT = "a slot is killed"
    FREEZE_SLOT = "a slot is taken for dead, and goes on"
    KILL_SLOTS = "all slots are killed"
    KILL_ALL = "driver and slots are killed; a new driver starts"
    KILL_DRIVER = "the driver is killed, its slots go on for a while; a new driver starts"
    FREEZE_DRIVER = "a new driver starts while the old one and its slots go on"
    STOP = "a user stops the job, and starts it again"


class SimCrash(BaseException):
    """Ends the process that is acting; not an Exception, so nothing on the way catches it."""


@dataclass(frozen=True, slots=True)
class WorldOptions:
    """What one run is like; the swarm draws it."""

    parallelism: Sequence[int] = (2,)
    """The parallelism of each driver in turn; the last one stays."""
    splits: int = 2
    records_max: int = 4
    keys: int = 3
    crashes: Mapping[int, Crash] = field(default_factory=dict)
    """What crashes, by the number of the crash point since the start of the run."""
    store_faults: int = 0
    resends: int = 0
    early_timeouts: int = 0
    """How many limits of the coordinator run out although nothing is wrong."""
    damages: int = 0
    """How many times everything is killed and a file of the checkpoint folder, or its copy, is damaged."""
    is_aligned: bool = True
    overtakes: bool = False
    """Barriers overtake rows as soon as they can."""
    halts: bool = False
    """Sources stand still until all slots have their snapshots."""
    has_real_windows: bool = False
    max_parallelism: int = 8
    shares_files: bool = False
    """Whether checkpoints name files that were written for earlier ones."""
    rows_max: int = RECORDS_MAX
    """The most rows that an operator gets at once."""
    piece_rows_max: int = PIECE_ROWS_MAX
    """The most windows that fire between two looks at barriers and records."""
    moves_max: int = MOVES_MAX
    """A run that has not finished by then is stuck."""
    params: Parameters = NO_PARAMS
    state: StateBackend = UNLIMITED
    """Where the state of each slot is."""
    steps_per_task: int = STEPS_PER_TASK
    """The most elements and pieces of one task in a step of its slot."""


Move = tuple[str, object, Callable[..., None], tuple[object, ...]]
"""Something that can happen next: what, who, do and given, for `do(*given)`. Ten or so are found for each
that is made, so they are plain tuples."""


class World:
    """One run of any job. `run` returns when the job has finished; raises Violation (or what the code
    asserts)."""

    def __init__(
        self,
        choices: Choices,
        options: WorldOptions,
        graph: JobGraph,
        checker: WorldChecker,
        durable: MemoryStore,
        is_traced: bool = False,
    ) -> None:
        """`durable`: where checkpoints are kept, all that survives besides what sinks wrote."""
        self.choices = choices
        self.options = options
        self.trace: list[str] = []
        self.marks: set[str] = set()
        self.points = 0
        """Crash points passed so far."""
        self.moves = 0
        self.clock = ManualClock()
        self.checker = checker
        self.store = WatchedStore(durable, checker, self.point)
        self.driver_store = FaultyStore(self.store, choices, options.store_faults, calm=12)
        self._graph = graph
        self._checkpoints = CheckpointOptions(
            interval_ms=1_000,
            min_pause_ms=1,
            persist_retry_ms=1,
            stop_timeout_ms=1_000_000,
            retained=1 + choices.choose(2, "retained"),
            restart=FixedDelay(1, failures_max=1_000),
            halts=options.halts,
        )
        overtake_after_ms = 0 if options.overtakes else None
        self._barriers = BarrierOptions(options.is_aligned, overtake_after_ms, options.halts)
        self._is_traced = is_traced
        self._early_timeouts = options.early_timeouts
        self._durable, self._damages = durable, options.damages
        self._slots: dict[int, SimSlot] = {}
        self._wirings: list[SimWiring] = []
        self._zombies: dict[int, int] = {}
        """Moves left, by peer."""
        self._actor: SimSlot | SimDriver | None = None
        self._drivers: list[SimDriver] = []
        self._starts = 0
        self._owner: dict[int, SimDriver] = {}
        self._next_peer = 1

    # --- The run ------------------------------------------------------------------------------------

    def run(self) -> None:
        self._start_driver()
        while self.moves < self.options.moves_max:
            for driver in list(self._drivers):
                if driver.finished is not None and self._after_finish(driver, driver.finished):
                    return
            self._move(self._next_move())
        raise Violation(
            Breach.STUCK,
            f"not finished after {self.moves} moves: {self._drivers[-1]!r}, {list(self._slots.values())}",
        )

    def _after_finish(self, driver: SimDriver, finished: ev.FinishJob) -> bool:
        """A driver has ended, and with it what it had not written yet. True: so has the job."""
        if finished.outcome is Outcome.FINISHED:
            self.checker.check_complete()
            return True
        # A zombie may find that files which only it still needs are gone.
        is_overtaken = self.checker.attempt > (driver.coordinator.attempt or 0)
        if finished.outcome is Outcome.FAILED and not is_overtaken:
            raise Violation(Breach.STUCK, f"the job failed: {finished}")
        self._drivers.remove(driver)
        # Fenced: another one is at work; if it has died since, somebody starts the job again.
        if not self._drivers:
            self._start_driver()
        return False

    def _next_move(self) -> Move:
        moves = self._possible_moves()
        if not moves:
            for slot in self._slots.values():
                slot.frozen_until = 0
            moves = self._possible_moves()
        if not moves:
            # Nothing can happen but that somebody's patience ends.
            driver = self._drivers[-1]
            if driver.coordinator.wake_at_ms == float("inf"):
                raise Violation(Breach.STUCK, f"stuck: {driver!r}, {list(self._slots.values())}")
            return ("time limit", driver, self._tick, (driver,))
        return moves[self.choices.choose(len(moves), "move")]

    def _move(self, move: Move) -> None:
        what, who, do, given = move
        self.moves += 1
        if self._is_traced:
            self.trace.append(f"{self.moves:4d} {what:14s} {who!r}")
        self._actor = who if isinstance(who, SimSlot | SimDriver) else None
        try:
            self.point("between moves")
            do(*given)
        except SimCrash:
            pass
        except (OnceflowError, OSError) as error:
            if not isinstance(who, SimSlot):
                raise
            self._on_slot_error(who, error)
        self._actor = None

    def _possible_moves(self) -> list[Move]:
        moves: list[Move] = []
        for driver in reversed(self._drivers):
            self._add_driver_moves(driver, moves)
        for slot in list(self._slots.values()):
            if slot.is_over:
                slot.close_functions()
                self._remove(slot, says_goodbye=True)
            elif slot.frozen_until <= self.moves:
                self._add_slot_moves(slot, moves)
        for wiring in self._wirings:
            for channel in wiring.channels.values():
                if channel.in_flight:
                    moves.append(("deliver", channel.receiver, self._deliver, (channel,)))
        moves += self.outside_moves()
        self._add_time_moves(self._drivers[-1], moves)
        return moves

    def outside_moves(self) -> list[Move]:
        """What may happen outside of the job."""
        return []

    def _add_time_moves(self, driver: SimDriver, moves: list[Move]) -> None:
        if driver.coordinator.is_waiting_for_time:
            moves.append(("tick", driver, self._tick, (driver,)))
        elif self._early_timeouts and driver.coordinator.phase is JobPhase.RUNNING:
            moves.append(("early timeout", driver, self._early_timeout, (driver,)))

    def _add_driver_moves(self, driver: SimDriver, moves: list[Move]) -> None:
        if driver.io_effects:
            moves.append(("store", driver, driver.run_io, ()))
        if driver.answers:
            moves.append(("answer", driver, driver.read_answer, ()))
        for peer in driver.mail:
            moves.append(("mail", driver, driver.read_mail, (peer,)))

    def _add_slot_moves(self, slot: SimSlot, moves: list[Move]) -> None:
        background = slot.background
        if slot.can_step:
            moves.append(("step", slot, self._step, (slot,)))
        for index in range(len(background.writes)):
            moves.append(("write", slot, self._job, (slot, background.writes, index)))
        if background.commits:
            moves.append(("commit", slot, self._job, (slot, background.commits, 0)))

    # --- Moves --------------------------------------------------------------------------------------

    def _step(self, slot: SimSlot) -> None:
        slot.step()
        self._age(slot)

    def _job(self, slot: SimSlot, jobs: Jobs, index: int) -> None:
        slot.background.run(jobs, index)
        slot.is_idle = False
        self._age(slot)

    def _deliver(self, channel: SimChannel) -> None:
        channel.deliver(1 + self.choices.choose(len(channel.in_flight), "elements"))

    def _tick(self, driver: SimDriver) -> None:
        self.clock.advance(max(0.0, driver.coordinator.wake_at_ms - self.clock.monotonic_ms()))
        driver.handle(ev.Tick())

    def _early_timeout(self, driver: SimDriver) -> None:
        self._early_timeouts -= 1
        self._tick(driver)

    def _age(self, slot: SimSlot) -> None:
        """Zombies do not live for ever."""
        if slot.peer in self._zombies:
            self._zombies[slot.peer] -= 1
            if self._zombies[slot.peer] <= 0:
                self._remove(slot, says_goodbye=True)

    # --- Processes ----------------------------------------------------------------------------------

    def _start_driver(self) -> None:
        parallelism = self.options.parallelism[min(self._starts, len(self.options.parallelism) - 1)]
        self._starts += 1
        self._drivers = self._drivers[-1:]  # of the zombies the latest is kept
        driver = SimDriver(
            self._graph,
            self.driver_store,
            self.clock,
            parallelism,
            self._checkpoints,
            self._start_slots,
            self._tell,
            self.marks.add,
        )
        self._drivers.append(driver)
        driver.start()

    def _start_slots(self, driver: SimDriver, attempt: int, slots: int) -> Sequence[int]:
        wiring = SimWiring(slots)
        live = {id(slot.wiring) for slot in self._slots.values()}
        self._wirings = [*(w for w in self._wirings if id(w) in live), wiring]
        peers = []
        for _ in range(slots):
            peer = self._next_peer
            self._next_peer += 1
            self._owner[peer] = driver
            self._slots[peer] = SimSlot(
                attempt,
                peer,
                self._graph,
                wiring,
                self.store,
                self.clock,
                self._post,
                SimSlotOptions(
                    self._barriers,
                    self.options.shares_files,
                    self.options.rows_max,
                    self.options.piece_rows_max,
                    self.options.steps_per_task,
                    self.options.params,
                    self.options.state,
                    self.choices.choose,
                ),
            )
            peers.append(peer)
        return peers

    def _tell(self, peer: int, message: Message) -> bool:
        slot = self._slots.get(peer)
        if slot is None:
            return False
        slot.tell(message)  # type: ignore[arg-type]  # what a driver sends
        return True

    def _post(self, peer: int, message: Message) -> None:
        self._owner[peer].post(peer, message)  # type: ignore[arg-type]  # what a slot sends

    def _remove(self, slot: SimSlot, says_goodbye: bool) -> None:
        """The process is gone; its connection ends after all that it has said."""
        slot.is_over = True
        if self._slots.pop(slot.peer, None) is not None and says_goodbye:
            self._owner[slot.peer].post(slot.peer, None)

    def _on_slot_error(self, slot: SimSlot, error: Exception) -> None:
        slot.send(failure(slot.attempt, error))
        self._remove(slot, says_goodbye=True)

    # --- Crashes ------------------------------------------------------------------------------------

    def point(self, what: str) -> None:
        """A crash may hit here; also in the middle of a move."""
        self.points += 1
        crash = self.options.crashes.get(self.points)
        if crash is not None:
            if self._is_traced:
                self.trace.append(f"     CRASH at point {self.points} ({what}): {crash.value}")
            self._crash(crash)

    def _crash(self, crash: Crash) -> None:
        driver = self._drivers[-1]
        own = [slot for slot in self._slots.values() if self._owner[slot.peer] is driver]
        match crash:
            case Crash.KILL_SLOT | Crash.FREEZE_SLOT:
                self._crash_slot(self._victim(own), is_killed=crash is Crash.KILL_SLOT)
            case Crash.KILL_SLOTS:
                self._kill(own)
            case Crash.KILL_ALL:
                self._drivers.remove(driver)
                self._start_driver()
                self._damage()
                self._kill(own, driver)
            case Crash.KILL_DRIVER:
                for slot in own:
                    self._freeze(slot)
                self._drivers.remove(driver)
                self._start_driver()
                self._kill([], driver)
            case Crash.FREEZE_DRIVER:
                for slot in own:
                    self._freeze(slot, is_deaf=False)
                self._start_driver()
            case Crash.STOP:
                driver.answers.append(ev.StopRequested())

    def _damage(self) -> None:
        """Files may be deleted too, but not while a zombie waits for the position of a log entry."""
        if self._damages:
            self._damages -= 1
            what = damage(self._durable, self.choices, can_delete=len(self._drivers) == 1)
            self.marks.add("damage" if what else "nothing to damage")
            if self._is_traced:
                self.trace.append(f"     DAMAGE: {what}")

    def _crash_slot(self, slot: SimSlot | None, is_killed: bool) -> None:
        if slot is None:
            return  # no slot runs right now
        if is_killed:
            self._kill([slot])
        else:
            self._freeze(slot)
            self._owner[slot.peer].post(slot.peer, None)

    def _victim(self, slots: Sequence[SimSlot]) -> SimSlot | None:
        """The one that acts, or any."""
        if isinstance(self._actor, SimSlot) and self._actor in slots:
            return self._actor
        return slots[self.choices.choose(len(slots), "victim")] if slots else None

    def _freeze(self, slot: SimSlot, is_deaf: bool = True) -> None:
        slot.is_deaf = is_deaf
        slot.frozen_until = self.moves + _FREEZES[self.choices.choose(len(_FREEZES), "frozen for")]
        self._zombies[slot.peer] = ZOMBIE_MOVES_MAX

    def _kill(self, slots: Sequence[SimSlot], driver: SimDriver | None = None) -> None:
        for slot in slots:
            self._remove(slot, says_goodbye=True)
        if self._actor is not None and (self._actor is driver or self._actor in slots):
            raise SimCrash
