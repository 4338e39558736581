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
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace

from onceflow.runtime.background import Threads
from onceflow.runtime.checkpoint.manifest import StateHandle
from onceflow.runtime.checkpoint.state_files import AttemptStagedFiles, StateFiles
from onceflow.runtime.checkpoint.store_url import open_store
from onceflow.runtime.clock import Clock, SystemClock
from onceflow.runtime.control.client import ControlClient
from onceflow.runtime.control.heartbeat import heartbeat_ms
from onceflow.runtime.control.messages import Assignment, Failed, Hello
from onceflow.runtime.errors import Fatal, Fenced, OnceflowError, Retryable, UsageError
from onceflow.runtime.exchange.transport import Network
from onceflow.runtime.graph import JobGraph
from onceflow.runtime.slot import Slot
from onceflow.runtime.slot_tasks import SlotBuilder, SlotEnvironment, SlotTasks
from onceflow.runtime.state.operator_state import OperatorState
from onceflow.runtime.version import VERSION
from onceflow.runtime.wiring import NetworkWiring

ASSIGNMENT_TIMEOUT_S = 120.0
LEASE_MS = 60_000.0
"""A slot that has not heard its driver for so long ends itself: another attempt may be running."""
IDLE_WAIT_MS_MAX = 5.0
COLLECT_EVERY_MS = 5_000.0
SNAPSHOT_THREADS = 2


@dataclass(frozen=True, slots=True)
class SlotLaunch:
    """All that a slot needs to find the driver; shipped by Spark with the closure."""

    attempt: int
    graph: JobGraph
    control_address: tuple[str, int]
    secret: bytes
    checkpoint_url: str
    is_aligned: bool = True
    checkpoint_interval_ms: int | None = None

    def __repr__(self) -> str:
        return f"SlotLaunch(job={self.graph.job!r}, attempt={self.attempt})"  # never the secret


def run_slot(
    launch: SlotLaunch,
    spark_partition: int,
    host: str,
    on_lost: Callable[[], None],
    graph: Callable[[], JobGraph] | None = None,
) -> None:
    """Run one slot to its end. Returns when the driver says so; what goes wrong is told to the driver.

    `host` is an address of this machine that the peers can reach. `on_lost` is called on another thread
    when the driver is gone; it should end the process. `graph` gives the graph that belongs in `launch`,
    if it has still to be read.
    """
    clock = SystemClock()
    control = ControlClient(launch.control_address, launch.secret, clock)
    network = Network(launch.secret, launch.attempt, host)
    try:
        if graph is not None:
            launch = replace(launch, graph=graph())
        control.send(_hello(launch.attempt, spark_partition, network))
        assignment = control.wait_assignment(ASSIGNMENT_TIMEOUT_S)
        if assignment is not None:
            _SlotRun(launch, assignment, control, network, clock).run(on_lost)
    except Exception as error:
        with contextlib.suppress(Retryable):
            control.send(failure(launch.attempt, error))
    finally:
        network.close()
        control.close()


def _hello(attempt: int, spark_partition: int, network: Network) -> Hello:
    return Hello(
        attempt=attempt,
        spark_partition=spark_partition,
        pid=os.getpid(),
        host=socket.gethostname(),
        data_address=network.address,
        version=VERSION,
    )


def failure(attempt: int, error: Exception) -> Failed:
    """What the driver has to know of an error that ended the slot."""
    expected = isinstance(error, OnceflowError)
    return Failed(
        attempt=attempt,
        reason=str(error) if expected else f"{type(error).__name__}: {error}",
        is_fatal=isinstance(error, Fatal | UsageError),
        is_fenced=isinstance(error, Fenced),
        detail="".join(traceback.format_exception(error)),
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
    ) -> None:
        self._launch = launch
        self._assignment = assignment
        self._control = control
        self._network = network
        self._clock = clock
        self._has_ended = threading.Event()

    def run(self, on_lost: Callable[[], None]) -> None:
        launch, assignment = self._launch, self._assignment
        self._network.slot = assignment.slot
        store = open_store(launch.checkpoint_url)
        state_files = StateFiles(store, assignment.attempt)
        background = Threads(SNAPSHOT_THREADS, on_done=self._network.wake)

        def write_state(checkpoint_id: int, uid: str, state: OperatorState) -> StateHandle:
            return state_files.write(checkpoint_id, uid, assignment.slot, state)

        slot = Slot(assignment, self._control, background, self._clock, write_state)
        environment = SlotEnvironment(
            clock=self._clock,
            staged_files=lambda uid: AttemptStagedFiles(store, assignment.attempt, uid, assignment.slot),
            read_state=state_files.read,
            on_snapshot=slot.on_snapshot,
            on_wait=slot.waiting_for,
            is_aligned=launch.is_aligned,
            checkpoint_interval_ms=launch.checkpoint_interval_ms,
        )
        slot_tasks: SlotTasks | None = None
        try:
            # First of all, since restoring may take long: hear the driver, and show that we live.
            self._control.listen(self._network.wake, self._on_control_lost(on_lost))
            threading.Thread(
                target=self._heartbeat, args=(slot, on_lost), name="onceflow-alive", daemon=True
            ).start()
            wiring = NetworkWiring(self._network, launch.graph, assignment.slot, assignment.peers)
            slot_tasks = SlotBuilder(launch.graph, assignment, wiring, environment).build()
            slot.start(slot_tasks)
            self._loop(slot)
        finally:
            self._has_ended.set()
            background.close()
            if slot_tasks is not None:
                slot_tasks.close()

    def _loop(self, slot: Slot) -> None:
        """Step while there is something to do; wait a little, and a little longer, while there is not.

        The cyclic collector is off inside the loop: it would walk every message of every batch. It runs
        between steps instead, for the young objects that a user's function may leave in cycles.
        """
        gc.collect()
        gc.freeze()
        gc.disable()
        try:
            wait_ms, collected_ms = 0.0, self._clock.monotonic_ms()
            while slot.shutdown_reason is None:
                wait_ms = 0.0 if slot.step() else min(2 * wait_ms + 1.0, IDLE_WAIT_MS_MAX)
                self._network.pump(wait_ms)
                now_ms = self._clock.monotonic_ms()
                if now_ms - collected_ms > COLLECT_EVERY_MS:
                    gc.collect(1)
                    collected_ms = now_ms
        finally:
            gc.enable()
            gc.unfreeze()

    def _heartbeat(self, slot: Slot, on_lost: Callable[[], None]) -> None:
        """A sign of life now and then, on a thread of its own: a user's function may take long."""
        pause_s = heartbeat_ms(self._assignment.parallelism) / 1000
        while not self._has_ended.wait(pause_s):
            if self._control.silent_ms > LEASE_MS:
                on_lost()
                return
            try:
                self._control.send(slot.progress())
            except Retryable:
                return

    def _on_control_lost(self, on_lost: Callable[[], None]) -> Callable[[], None]:
        def lost() -> None:
            if not self._has_ended.is_set():
                on_lost()

        return lost
