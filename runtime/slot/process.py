"""From a launched process (or thread) to a running slot, and its end.

Spark's barrier stage calls `run_slot` once in each of its tasks, LocalRunner in threads. The order:
open the data listener, say hello to the driver, get the assignment, restore, connect to the peers, run
until the driver ends the attempt or an error does. Whatever happens, everything opened is closed.
"""

from __future__ import annotations

import contextlib
import gc
import os
import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import Any

from onceflow.runtime.background import Threads
from onceflow.runtime.checkpoint.manifest import StateHandle
from onceflow.runtime.checkpoint.options import BarrierOptions
from onceflow.runtime.checkpoint.shared_folder import check_is_shared
from onceflow.runtime.checkpoint.staged_files import AttemptStagedFiles
from onceflow.runtime.checkpoint.state_files import StateFiles, check_writable
from onceflow.runtime.checkpoint.store_url import open_store
from onceflow.runtime.clock import Clock, SystemClock
from onceflow.runtime.control.client import ControlClient
from onceflow.runtime.control.heartbeat import heartbeat_ms
from onceflow.runtime.control.messages import (
    Assignment,
    Healed,
    Hello,
)
from onceflow.runtime.environment.stalls import StallWatch
from onceflow.runtime.errors import Retryable
from onceflow.runtime.exchange.transport import Network
from onceflow.runtime.exchange.wiring import NetworkWiring
from onceflow.runtime.functions.lives import FunctionLives
from onceflow.runtime.functions.parameters import NO_PARAMS, Parameters
from onceflow.runtime.graph.job_graph import JobGraph
from onceflow.runtime.slot.call_watch import CallWatch, stack_of
from onceflow.runtime.slot.collector import collector_off
from onceflow.runtime.slot.failure import failure, hanging
from onceflow.runtime.slot.function_closing import SlotWord, close_functions
from onceflow.runtime.slot.slot import Slot
from onceflow.runtime.slot.slot_tasks import SlotTasks
from onceflow.runtime.slot.tasks import SlotBuilder, SlotEnvironment
from onceflow.runtime.sockets.credentials import Credentials
from onceflow.runtime.state.operator_state import FrozenState
from onceflow.runtime.state.overflow import StateOptions
from onceflow.runtime.state.tables import state_backend
from onceflow.runtime.version import VERSION

ASSIGNMENT_TIMEOUT_S = 120.0
LEASE_MS = 60_000.0
"""A slot that has not heard its driver for so long ends itself: another attempt may be running."""
IDLE_WAIT_MS_MAX = 5.0
COLLECT_EVERY_MS = 5_000.0
SNAPSHOT_THREADS = 2
SAY_CALL_AFTER_MS = 3_000.0
"""A call of the user's function that takes so long is shown on the live line."""
LAST_WORD_S = 2.0
"""How long a slot with a call that hangs waits for the driver to end it, before it does so itself."""


@dataclass(frozen=True, slots=True)
class SlotLaunch:
    """All that a slot needs to find the driver; shipped by Spark with the closure."""

    number: int
    """Counts this driver's launches: slots of an earlier one, for which nobody waits, are sent away."""
    attempt: int
    """The attempt that they are launched for; it may not be opened yet."""
    graph: JobGraph
    control_address: tuple[str, int]
    credentials: Credentials
    checkpoint_url: str
    storage_options: Mapping[str, Any] = field(default_factory=dict)
    barriers: BarrierOptions = BarrierOptions()  # noqa: RUF009 - it is frozen
    state: StateOptions = StateOptions()  # noqa: RUF009 - it is frozen
    checkpoint_interval_ms: int | None = None
    slot_timeout_ms: float = 30_000.0
    params: Parameters = NO_PARAMS

    def __repr__(self) -> str:
        return f"SlotLaunch(job={self.graph.job!r}, attempt={self.attempt})"  # never the secret


EndProcess = Callable[[], None]


def run_slot(
    launch: SlotLaunch,
    spark_partition: int,
    host: str,
    end_process: EndProcess | None,
    graph: Callable[[], JobGraph] | None = None,
) -> None:
    """Run one slot to its end. Returns when the driver says so; what goes wrong is told to the driver.

    `host` is an address of this machine that the peers can reach. `end_process` is called on another
    thread when the driver is gone, or a call of the user's function does not come back; None: the slot
    is a thread among others of its process, which nothing can end. `graph` gives the graph that belongs
    in `launch`, if it has still to be read.
    """
    clock = SystemClock()
    control = ControlClient(launch.control_address, launch.credentials, clock)
    network = Network(launch.credentials, launch.attempt, host)
    is_near = launch.control_address[0].startswith("127.")
    stalls = StallWatch(launch.slot_timeout_ms, has_process=end_process is not None, is_near=is_near)
    say = SlotWord(launch.attempt, control.send, launch.params)
    lives = FunctionLives(say.noticed, say.functions_opened)
    try:
        if graph is not None:
            launch = replace(launch, graph=graph())
        control.send(_hello(launch, spark_partition, network, stalls.fd))
        assignment = control.wait_assignment(ASSIGNMENT_TIMEOUT_S)
        if assignment is not None:
            _SlotRun(launch, assignment, control, network, clock, stalls, lives).run(end_process)
    except BaseException as error:  # also of a function that calls sys.exit(), or a library that panics
        say.send(failure(launch.attempt, error, launch.params))
    finally:
        # Behind the first error, which nothing that goes wrong here may hide.
        close_functions(lives, say.noticed, end_process)
        say.functions_closed()
        stalls.close()
        network.close()
        control.close()


def _hello(launch: SlotLaunch, spark_partition: int, network: Network, stacks_fd: int | None) -> Hello:
    return Hello(
        launch=launch.number,
        attempt=launch.attempt,
        spark_partition=spark_partition,
        pid=os.getpid(),
        host=socket.gethostname(),
        data_address=network.address,
        version=VERSION,
        stacks_fd=stacks_fd,
    )


class _SlotRun:
    """One slot between its assignment and its end."""

    def __init__(
        self,
        launch: SlotLaunch,
        assignment: Assignment,
        control: ControlClient,
        network: Network,
        clock: Clock,
        stalls: StallWatch,
        lives: FunctionLives,
    ) -> None:
        self._launch = launch
        self._assignment = assignment
        self._control = control
        self._network = network
        self._clock = clock
        self._stalls = stalls
        self._lives = lives
        self._has_ended = threading.Event()
        self._steps = 0

    def run(self, end_process: EndProcess | None) -> None:
        launch, assignment = self._launch, self._assignment
        self._network.slot = assignment.slot
        slot: Slot | None = None

        def on_waiting(reason: str) -> None:
            if slot is not None:
                slot.waiting_for("checkpoint folder", reason)

        store = open_store(launch.checkpoint_url, launch.storage_options, on_waiting)
        if assignment.attempt_entry is not None:
            check_is_shared(store, assignment.attempt_entry, socket.gethostname())
        check_writable(store, assignment.attempt, assignment.slot)
        state_files = StateFiles(store, assignment.attempt, self._say_healed)
        background = Threads(SNAPSHOT_THREADS, on_done=self._network.wake)

        def write_state(checkpoint_id: int, uid: str, state: FrozenState) -> StateHandle:
            return state_files.write(checkpoint_id, uid, assignment.slot, state)

        slot = Slot(assignment, self._control, background, self._clock, write_state)
        environment = SlotEnvironment(
            clock=self._clock,
            staged_files=lambda uid: AttemptStagedFiles(
                store, assignment.attempt, uid, assignment.slot, self._say_healed
            ),
            read_states=state_files.read_all,
            on_snapshot=slot.on_snapshot,
            on_wait=slot.waiting_for,
            wake=self._network.wake,
            barriers=launch.barriers,
            state=state_backend(launch.state),
            checkpoint_interval_ms=launch.checkpoint_interval_ms,
            functions=self._lives,
            params=launch.params,
        )
        slot_tasks: SlotTasks | None = None
        try:
            # First of all, since restoring may take long: hear the driver, and show that we live.
            self._control.listen(self._network.wake, self._on_control_lost(end_process))
            arguments = (slot, stack_of(threading.get_ident()), end_process)
            threading.Thread(
                target=self._heartbeat, args=arguments, name="onceflow-alive", daemon=True
            ).start()
            goal_ms = launch.barriers.in_flight_ms
            wiring = NetworkWiring(
                self._network, launch.graph, assignment.slot, assignment.peers, self._clock, goal_ms
            )
            slot_tasks = SlotBuilder(launch.graph, assignment, wiring, environment).build()
            slot.start(slot_tasks)
            self._loop(slot, slot_tasks)
        finally:
            self._has_ended.set()
            background.close()
            if slot_tasks is not None:
                slot_tasks.close()

    def _loop(self, slot: Slot, slot_tasks: SlotTasks) -> None:
        """Step while there is something to do; wait a little, and a little longer, while there is not. Young
        objects that a user's function may leave in cycles are collected between steps."""
        with collector_off():
            wait_ms, collected_ms = 0.0, self._clock.monotonic_ms()
            while slot.shutdown_reason is None:
                self._steps += 1
                idle_ms = min(2 * wait_ms + 1.0, IDLE_WAIT_MS_MAX)
                wait_ms = 0.0 if slot.step() else self._until(slot_tasks.wake_at_ms, idle_ms)
                waits_ms = self._clock.monotonic_ms() if wait_ms else None
                self._network.pump(wait_ms)
                now_ms = self._clock.monotonic_ms()
                if waits_ms is not None:
                    slot.usage.idle_ms += now_ms - waits_ms
                if now_ms - collected_ms > COLLECT_EVERY_MS:
                    gc.collect(1)
                    collected_ms = now_ms

    def _until(self, wake_at_ms: int | None, wait_ms: float) -> float:
        """How long to wait: no longer than to this time of the clock."""
        return wait_ms if wake_at_ms is None else min(wait_ms, max(0.0, wake_at_ms - self._clock.now_ms()))

    def _heartbeat(
        self, slot: Slot, stack: Callable[[], FrameType | None], end_process: EndProcess | None
    ) -> None:
        """A sign of life now and then, on a thread of its own: a user's function may take long. For ever
        it may not: a call that lasts for the slot timeout is the slot's end."""
        pause_ms = heartbeat_ms(self._assignment.parallelism)
        watch = CallWatch(stack, pause_ms)
        patience_s = LAST_WORD_S
        try:
            self._stalls.put_off()
            while not self._has_ended.wait(pause_ms / 1000):
                self._stalls.put_off()
                if self._control.silent_ms > LEASE_MS:
                    patience_s = 0.0
                    break
                if not self._show_life(slot, watch, can_end=end_process is not None):
                    break
        finally:  # nobody puts it off any more
            self._stalls.close()
        if end_process is not None and not self._has_ended.wait(patience_s):
            end_process()

    def _show_life(self, slot: Slot, watch: CallWatch, can_end: bool) -> bool:
        """Tell the driver how the slot is. False: it is over."""
        slot.usage.measure(self._clock.monotonic_ms())
        call = watch.look(self._steps, self._clock.monotonic_ms())
        lasted_ms = watch.lasted_ms
        try:
            if call is not None and not call.may_last and lasted_ms >= self._launch.slot_timeout_ms:
                failed = hanging(self._launch.attempt, call, lasted_ms, can_end, self._launch.params)
                self._control.send(failed)
                return False
            if call is not None and lasted_ms >= SAY_CALL_AFTER_MS:
                slot.waiting_for(call.uid, call.describe(lasted_ms))
            self._control.send(slot.progress())
        except Retryable:
            return False
        return True

    def _say_healed(self, problem: str) -> None:
        with contextlib.suppress(Retryable):
            self._control.send(Healed(attempt=self._assignment.attempt, problem=problem))

    def _on_control_lost(self, end_process: EndProcess | None) -> Callable[[], None]:
        def lost() -> None:
            if end_process is not None and not self._has_ended.is_set():
                end_process()

        return lost
