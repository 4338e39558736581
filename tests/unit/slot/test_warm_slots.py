"""WarmSlots: who belongs to the next attempt, when they are all there, and who is let go."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
import pytest

from onceflow.runtime.checkpoint import events as ev
from onceflow.runtime.control.message import Message
from onceflow.runtime.control.messages import Acked, Assignment, Failed, Hello, Shutdown
from onceflow.runtime.slot.group import SlotGroup
from onceflow.runtime.slot.warm_slots import LaunchedSlots, WarmSlots
from onceflow.runtime.testing.mutation import Mutant, mutated

RUNNING = 4
NEXT = RUNNING + 1


class Host:
    """Launches, what was sent to whom, and which launches were cancelled."""

    def __init__(self) -> None:
        self.warm = WarmSlots()
        self.sent: list[tuple[int, Message]] = []
        self.cancelled: list[int] = []

    def launch(self, number: int, slots: int = 2) -> LaunchedSlots:
        group = SlotGroup(NEXT, number, slots, self._send, self._send_all, 30_000)
        return LaunchedSlots(group, lambda: self.cancelled.append(number))

    def hello(self, peer: int, launch: int) -> list[ev.Event]:
        hello = Hello(launch, NEXT, peer, 100 + peer, "here", ("127.0.0.1", 1000 + peer), "0")
        assert self.warm.is_from_them(hello)
        return self.warm.on_message(peer, hello, 0)

    def assign(self, slot: int, peers: Sequence[tuple[str, int]]) -> Assignment:
        return Assignment(NEXT, slot, 2, "ab", 0, peers, {}, [], {})

    def _send(self, peer: int, message: Message) -> bool:
        self.sent.append((peer, message))
        return True

    def _send_all(self, peers: Iterable[int], message: Message) -> None:
        self.sent += [(peer, message) for peer in peers]


@pytest.fixture
def host() -> Host:
    """Two slots are expected."""
    host = Host()
    host.warm.expect(host.launch(1))
    return host


def test_they_are_warm_when_all_are_there_and_begin_with_the_attempt(host: Host) -> None:
    assert host.hello(7, launch=1) == []
    assert host.hello(8, launch=1) == [ev.SlotsWarmed(RUNNING, 2)]
    launched = host.warm.take(NEXT, 2)
    assert launched is not None
    assert not host.sent, "nobody is told anything before the attempt is opened"
    launched.group.begin(host.assign, 5)
    assert [peer for peer, message in host.sent if isinstance(message, Assignment)] == [7, 8]
    host.warm.end("the job has ended")
    assert not host.cancelled, "they run now"


def test_an_attempt_begins_with_those_that_are_still_on_their_way(host: Host) -> None:
    host.hello(8, launch=1)
    launched = host.warm.take(NEXT, 2)
    assert launched is not None
    launched.group.begin(host.assign, 5)
    assert not launched.group.slots
    late = Hello(1, NEXT, 7, 107, "here", ("127.0.0.1", 1007), "0")
    assert launched.group.on_message(7, late, 6) == []
    assert len(launched.group.slots) == 2


@pytest.mark.parametrize(("attempt", "slots"), [(NEXT + 1, 2), (NEXT, 3)])
def test_another_attempt_or_another_number_begins_without_them(host: Host, attempt: int, slots: int) -> None:
    host.hello(7, launch=1)
    assert host.warm.take(attempt, slots) is None
    assert host.cancelled == [1]
    assert isinstance(dict(host.sent)[7], Shutdown)
    assert host.warm.take(NEXT, 2) is None


def test_one_that_is_lost_or_fails_ends_the_wait_for_all(host: Host) -> None:
    host.hello(7, launch=1)
    assert host.warm.on_lost(99) == []
    assert host.warm.on_lost(7) == [ev.SlotsWarmed(RUNNING, 0)]
    assert host.cancelled == [1]
    assert host.warm.on_lost(7) == []
    host.warm.expect(host.launch(2))
    failed = Failed(NEXT, "module 'mine' is not there", is_fatal=True)
    assert host.warm.is_from_them(failed)
    assert host.warm.on_message(9, failed, 0) == [ev.SlotsWarmed(RUNNING, 0)]
    assert host.cancelled == [1, 2]


def test_a_host_that_ends_them_ends_the_wait(host: Host) -> None:
    other, launched = host.launch(2), host.launch(3)
    host.warm.expect(launched)
    assert host.warm.on_host_ended(other.group) == []
    assert host.warm.on_host_ended(launched.group) == [ev.SlotsWarmed(RUNNING, 0)]
    assert host.cancelled == [1, 3]


def test_what_slots_of_the_running_attempt_say_is_not_theirs(host: Host) -> None:
    hello = Hello(1, RUNNING, 0, 100, "here", ("127.0.0.1", 1), "0")
    for message in (hello, Acked(NEXT, 1, None), Failed(RUNNING, "gone", is_fatal=False)):  # type: ignore[arg-type]
        assert not host.warm.is_from_them(message)
    host.warm.end("nobody waits")
    assert not host.warm.is_from_them(msgspec.structs.replace(hello, attempt=NEXT))


def test_slots_of_a_launch_that_is_not_wanted_any_more_are_sent_away(host: Host) -> None:
    _sends_the_earlier_ones_away(host)


def test_mutant_is_killed() -> None:
    def welcome_all(self: SlotGroup, peer: int, hello: Hello, now_ms: float) -> list[ev.Event]:
        return on_hello(self, peer, msgspec.structs.replace(hello, launch=self._launch), now_ms)

    on_hello = SlotGroup._on_hello
    host = Host()
    host.warm.expect(host.launch(1))
    with (
        mutated(Mutant("a hello of any launch is taken", [(SlotGroup, "_on_hello", welcome_all)])),
        pytest.raises(AssertionError),
    ):
        _sends_the_earlier_ones_away(host)


def _sends_the_earlier_ones_away(host: Host) -> None:
    host.warm.expect(host.launch(2))
    assert host.cancelled == [1]
    assert host.hello(7, launch=1) == []
    assert [peer for peer, message in host.sent if isinstance(message, Shutdown)] == [7]
    assert host.hello(8, launch=2) == []
    assert host.hello(9, launch=2) == [ev.SlotsWarmed(RUNNING, 2)]
