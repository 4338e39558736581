"""SlotGroup: the slots of one attempt, as the driver sees them. Decides nothing about checkpoints.

It collects the slots' hellos, numbers them, sends each its assignment, and turns what they say into the
coordinator's events. Peers of other attempts are sent away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from onceflow.runtime.checkpoint import events as ev
from onceflow.runtime.checkpoint.fingerprints import fingerprints, is_unavailable
from onceflow.runtime.control.message import Message
from onceflow.runtime.control.messages import (
    Acked,
    Committed,
    Declined,
    Drained,
    Failed,
    GroupWatermarks,
    Hello,
    LowestWatermarks,
    Progress,
    Running,
    Shutdown,
    ToDriver,
)
from onceflow.runtime.environment.stalls import find_place, read_stacks
from onceflow.runtime.errors import Fatal, OnceflowError, UsageError
from onceflow.runtime.slot.assignments import Assign
from onceflow.runtime.slot.watermark_alignment import GroupsOfAttempt

HOST_WAIT_SHOWN_MS = 3_000.0
HEAR_OUT_MS = 1_000.0
"""How long a slot that failed of itself is waited for, when others say that it is gone."""


@dataclass(slots=True)
class SlotPeer:
    """A slot that said hello."""

    peer: int
    hello: Hello
    heard_ms: float
    progress: Progress | None = None


class SlotGroup:
    """One per attempt. The driver's thread calls it."""

    def __init__(
        self,
        attempt: int,
        launch: int,
        parallelism: int,
        send: Callable[[int, Message], bool],
        send_all: Callable[[Iterable[int], Message], None],
        timeout_ms: float,
        stacks: Callable[[int, int], str] = read_stacks,
    ) -> None:
        """`launch`: see SlotLaunch; `stacks(pid, its stacks_fd)` is asked of a slot that is silent."""
        self.attempt = attempt
        self.parallelism = parallelism
        self._launch = launch
        self._assign: Assign | None = None
        self._send = send
        self._send_all = send_all
        self._timeout_ms = timeout_ms
        self._stacks = stacks
        self._arrived: dict[int, SlotPeer] = {}
        self._slots: list[SlotPeer] = []
        self._slot_of_peer: dict[int, int] = {}
        self._running: set[int] = set()
        self._groups = GroupsOfAttempt(parallelism)
        self._first_record_ms: int | None = None
        self._hearsay: tuple[float, ev.AttemptFailed] | None = None
        """Since when and why the attempt is over as others have it, until a slot says so itself."""
        self._host_wait = (-HOST_WAIT_SHOWN_MS, "")
        self.is_over = False
        """No event comes from it any more."""

    def begin(self, assign: Assign, now_ms: float) -> None:
        """The attempt is opened: as soon as all slots are there, `assign(slot, data addresses of all)` says
        what each starts from."""
        self._assign = assign
        self._assign_all(now_ms)

    @property
    def are_there(self) -> bool:
        """All slots have said hello."""
        return len(self._arrived) == self.parallelism

    @property
    def slots(self) -> Sequence[SlotPeer]:
        """The slots in the order of their numbers, once all have arrived and were assigned; empty before."""
        return self._slots

    @property
    def first_record_ms(self) -> int | None:
        """Wall clock when the first slot read its first record in this attempt."""
        return self._first_record_ms

    def describe(self) -> list[Mapping[str, int | str]]:
        """Which process is which slot, for people."""
        return [
            {"slot": number, "pid": slot.hello.pid, "host": slot.hello.host}
            for number, slot in enumerate(self._slots)
        ]

    def describe_usage(self) -> list[Mapping[str, int | str | float]]:
        """How busy each slot is, and how much memory its process has, for people."""
        told = zip(self.describe(), (slot.progress for slot in self._slots), strict=True)
        return [
            {**slot, "busy_ratio": p.busy_ratio if p else 0.0, "rss_bytes": p.rss_bytes if p else 0}
            for slot, p in told
        ]

    @property
    def rss_bytes(self) -> int:
        """Memory of all processes. Slots that are threads of one share it."""
        by_process = {
            (slot.hello.host, slot.hello.pid): slot.progress.rss_bytes
            for slot in self._slots
            if slot.progress is not None
        }
        return sum(by_process.values())

    def on_message(self, peer: int, message: ToDriver, now_ms: float) -> list[ev.Event]:
        """What a slot's message means. [] if it is of another attempt or says nothing new."""
        if isinstance(message, Hello):
            return self._on_hello(peer, message, now_ms)
        if self.is_over or getattr(message, "attempt", None) != self.attempt:
            return []
        if isinstance(message, Failed):  # also of a slot that could not even say hello
            return self._on_failed(message, now_ms)
        slot = self._slot_of_peer.get(peer)
        if slot is None:
            return []
        self._slots[slot].heard_ms = now_ms
        return self._on_slot_message(slot, message)

    def on_lost(self, peer: int) -> list[ev.Event]:
        """A connection has ended."""
        if self.is_over or peer not in self._arrived:
            return []
        gone = self._arrived[peer]
        name = f"slot {self._slot_of_peer[peer]}" if peer in self._slot_of_peer else "a slot"
        return [self._failed(f"{name} (pid {gone.hello.pid} on {gone.hello.host}) was lost")]

    def on_host_ended(self, error: OnceflowError | None, now_ms: float) -> list[ev.Event]:
        """The host says that all slots are over, and why if it knows."""
        if self.is_over:
            return []
        failed = ev.AttemptFailed(
            self.attempt,
            str(error or "the host ended the slots"),
            isinstance(error, Fatal | UsageError),
            is_unavailable=error is not None and is_unavailable(error),
            kind="" if error is None else type(error).__name__,
            fingerprints=frozenset() if error is None else fingerprints(error),
        )
        if self._arrived and not failed.is_fatal:
            # Why is for the slots to say. It comes on another way than this, and may come behind it.
            return self._hear_say(failed, now_ms)
        return [failed]

    def on_host_waiting(self, reason: str, now_ms: float) -> list[ev.Event]:
        """The host has not room for all slots yet."""
        self._host_wait = (now_ms, reason)
        return [] if self.is_over or self._slots else [ev.SlotsAwaited(self.attempt)]

    def host_wait(self, now_ms: float) -> str | None:
        """What the host waits for, if it has said so in the last seconds."""
        said_ms, reason = self._host_wait
        return reason if now_ms - said_ms < HOST_WAIT_SHOWN_MS else None

    def check_alive(self, now_ms: float) -> list[ev.Event]:
        """Who has been silent for too long? A frozen process keeps its connection."""
        if self._hearsay is not None and not self.is_over and now_ms - self._hearsay[0] >= HEAR_OUT_MS:
            return [self._hearsay[1]]
        for number, slot in enumerate(self._slots):
            silent_ms = now_ms - slot.heard_ms
            if not self.is_over and silent_ms > self._timeout_ms:
                return [self._silent(number, slot.hello, silent_ms)]
        return []

    def broadcast(self, message: Message) -> None:
        """Send to every slot; one that is gone is noticed by its connection."""
        self._send_all((slot.peer for slot in self._slots), message)

    def send(self, slot: int, message: Message) -> None:
        self._send(self._slots[slot].peer, message)

    def end(self, reason: str) -> None:
        """The attempt is over: tell every slot that arrived, hear none any more."""
        self.is_over = True
        self._send_all(self._arrived, Shutdown(reason=reason))

    def _on_hello(self, peer: int, hello: Hello, now_ms: float) -> list[ev.Event]:
        if self.is_over or hello.launch != self._launch or self._slots:
            self._send(peer, Shutdown(reason=f"attempt {hello.attempt} is over"))
            return []
        self._arrived[peer] = SlotPeer(peer, hello, now_ms)
        self._assign_all(now_ms)
        return []

    def _assign_all(self, now_ms: float) -> None:
        if self._assign is None or not self.are_there:
            return
        self._slots = sorted(self._arrived.values(), key=lambda slot: slot.hello.spark_partition)
        self._slot_of_peer = {slot.peer: number for number, slot in enumerate(self._slots)}
        addresses = [slot.hello.data_address for slot in self._slots]
        for number, slot in enumerate(self._slots):
            slot.heard_ms = now_ms
            self._send(slot.peer, self._assign(number, addresses))

    def _on_slot_message(self, slot: int, message: ToDriver) -> list[ev.Event]:
        match message:
            case Acked():
                return [ev.SlotAcked(self.attempt, message.checkpoint_id, slot, message.snapshot)]
            case Committed():
                return [ev.SlotCommitted(self.attempt, message.checkpoint_id, slot)]
            case Running():
                self._running.add(slot)
                return [ev.SlotsRunning(self.attempt)] if len(self._running) == len(self._slots) else []
            case Declined():
                n, reason = message.checkpoint_id, message.reason
                return [ev.SlotDeclined(self.attempt, n, slot, reason, message.is_unavailable)]
            case Drained():
                return [ev.SlotDrained(self.attempt, slot)]
            case Progress():
                return self._on_progress(slot, message)
            case LowestWatermarks(by_group=by_group, has_paused=has_paused):
                for untold in self._groups.report(slot, by_group, has_paused):
                    self.send(untold, GroupWatermarks(by_group=self._groups.lowest))
                return []
            case _:
                return []

    def _on_failed(self, failed: Failed, now_ms: float) -> list[ev.Event]:
        if failed.is_consequence:
            return self._hear_say(self._failed(failed.reason), now_ms)
        return [
            ev.AttemptFailed(
                self.attempt,
                failed.reason,
                failed.is_fatal,
                failed.is_fenced,
                failed.is_unavailable,
                frozenset(failed.fingerprints),
                failed.kind,
            )
        ]

    def _on_progress(self, slot: int, progress: Progress) -> list[ev.Event]:
        self._slots[slot].progress = progress
        if progress.first_record_ms is None:
            return []
        earlier, first_ms = self._first_record_ms, progress.first_record_ms
        self._first_record_ms = first_ms if earlier is None else min(earlier, first_ms)
        return [ev.FirstRecordRead(self.attempt)] if earlier is None else []

    def _hear_say(self, failed: ev.AttemptFailed, now_ms: float) -> list[ev.Event]:
        self._hearsay = self._hearsay or (now_ms, failed)
        return []

    def _silent(self, number: int, hello: Hello, silent_ms: float) -> ev.AttemptFailed:
        who = f"slot {number} (pid {hello.pid}) is silent for {silent_ms / 1000:.0f} s"
        place = None if hello.stacks_fd is None else find_place(self._stacks(hello.pid, hello.stacks_fd))
        if place is None:
            why = "its process is frozen, or a function in it does not let go of Python's lock"
            return self._failed(f"{who}: {why}")
        said = (
            f"{who}: it is at {place}, in a call that does not let go of Python's lock; if it may take so "
            "long, give a longer slot_timeout"
        )
        return ev.AttemptFailed(self.attempt, said, fingerprints=frozenset({place.fingerprint}))

    def _failed(self, reason: str) -> ev.AttemptFailed:
        return ev.AttemptFailed(self.attempt, reason)
