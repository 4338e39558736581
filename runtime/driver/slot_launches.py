"""SlotLaunches: slots are started for the attempt that was opened, and ahead for the next one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from onceflow.runtime.checkpoint import events as ev
from onceflow.runtime.control.heartbeat import silence_ms_max
from onceflow.runtime.control.messages import ToDriver
from onceflow.runtime.control.server import ControlServer
from onceflow.runtime.driver.launch_options import launch_of
from onceflow.runtime.driver.options import RunOptions
from onceflow.runtime.errors import OnceflowError
from onceflow.runtime.functions.resolve import resolve
from onceflow.runtime.graph.job_graph import JobGraph
from onceflow.runtime.hosts.launch import SlotLauncher
from onceflow.runtime.slot.assignments import Assign
from onceflow.runtime.slot.group import SlotGroup
from onceflow.runtime.slot.warm_slots import LaunchedSlots, WarmSlots
from onceflow.runtime.sockets.credentials import Credentials

Later = Callable[[Callable[[], Sequence[ev.Event]]], None]
"""Has a function called on the driver's thread, and its events handled. From any thread."""


class SlotLaunches:
    """All groups of slots of a run. The driver's thread calls it."""

    def __init__(
        self,
        graph: JobGraph,
        options: RunOptions,
        launcher: SlotLauncher,
        server: ControlServer,
        credentials: Credentials,
        now_ms: Callable[[], float],
        later: Later,
    ) -> None:
        self._graph = graph
        self._options = options
        self._launcher = launcher
        self._server = server
        self._credentials = credentials
        self._now_ms = now_ms
        self._later = later
        self._launches = 0
        self._warm = WarmSlots()
        self._running: LaunchedSlots | None = None

    def begin(self, attempt: int, slots: int, assign: Assign) -> SlotGroup:
        """The attempt is opened: its slots, which may be waiting for it already. Raises OnceflowError for
        parameters of the program that can't be resolved."""
        self._running = self._warm.take(attempt, slots) or self._launch(attempt, slots)
        self._running.group.begin(assign, self._now_ms())
        return self._running.group

    def warm(self, attempt: int, running: int, slots: int) -> Sequence[ev.Event]:
        """Start `slots` slots for the attempt behind this one, which runs with `running` slots, if the host
        has room for both; 0: nobody wants those that wait any more."""
        self._warm.end("another number of slots is wanted")
        if slots == 0:
            return []
        if not self._launcher.has_room(running + slots):
            return [ev.SlotsWarmed(attempt, 0)]
        try:
            self._warm.expect(self._launch(attempt + 1, slots))
        except OnceflowError:  # the attempt itself meets the same, and says so
            return [ev.SlotsWarmed(attempt, 0)]
        return []

    def is_of_next(self, message: ToDriver) -> bool:
        """Whether a slot says it that waits for the next attempt."""
        return self._warm.is_from_them(message)

    def on_message(self, peer: int, message: ToDriver) -> Sequence[ev.Event]:
        """What `is_of_next`."""
        return self._warm.on_message(peer, message, self._now_ms())

    def on_lost(self, peer: int) -> Sequence[ev.Event]:
        """The connection of some slot has ended."""
        ours = [] if self._running is None else self._running.group.on_lost(peer)
        return ours or self._warm.on_lost(peer)

    def cancel(self) -> None:
        """End at the host what is left of the attempt, soon."""
        if self._running is not None:
            self._running.cancel()

    def close(self) -> None:
        """The job has ended: nobody waits for another attempt."""
        self._warm.end("the job has ended")

    def _launch(self, attempt: int, slots: int) -> LaunchedSlots:
        self._launches += 1
        options, server = self._options, self._server
        params = resolve(self._graph.params, options.params)
        silence_ms = silence_ms_max(slots, options.slot_timeout_ms)
        group = SlotGroup(attempt, self._launches, slots, server.send, server.broadcast, silence_ms)
        launch = launch_of(
            options,
            self._launches,
            attempt,
            self._graph,
            server.address,
            self._credentials,
            silence_ms,
            params,
        )

        def on_ended(error: OnceflowError | None) -> None:
            self._later(lambda: self._on_host_ended(group, error))

        def on_waiting(reason: str) -> None:
            now_ms = self._now_ms()
            self._later(lambda: group.on_host_waiting(reason, now_ms))

        return LaunchedSlots(group, self._launcher.launch(launch, slots, on_ended, on_waiting))

    def _on_host_ended(self, group: SlotGroup, error: OnceflowError | None) -> Sequence[ev.Event]:
        return self._warm.on_host_ended(group) or group.on_host_ended(error, self._now_ms())
