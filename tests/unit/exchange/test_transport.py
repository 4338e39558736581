"""Channels over real sockets: order, backpressure, strangers, stale attempts, a peer that is lost."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from onceflow.runtime.exchange.channel import CAPACITY_BYTES
from onceflow.runtime.exchange.frames import HEADER, RECORDS, FrameCodec
from onceflow.runtime.exchange.remote_channel import PeerLostError, RemoteInput, RemoteOutput
from onceflow.runtime.exchange.transport import Network
from onceflow.runtime.records import Barrier, Element, EndOfInput, Records, Watermark
from onceflow.runtime.sockets.certificate import new_identity
from onceflow.runtime.sockets.connect import connect
from onceflow.runtime.sockets.credentials import Credentials
from tests.pace import slowness

PLAIN = Credentials(b"s" * 32)
TLS = Credentials(b"s" * 32, new_identity())
SCHEMA = pa.schema([("x", pa.int64()), ("filling", pa.binary())])
CODEC = FrameCodec(SCHEMA, has_event_time=True, has_key_hash=False, with_origin=False)
DEADLINE_S = 80


def rows(first: int, count: int = 1, filling: bytes = b"") -> Records:
    numbers = np.arange(first, first + count, dtype=np.int64)
    return Records(pa.record_batch([pa.array(numbers), pa.array([filling] * count)], schema=SCHEMA), numbers)


class Slots:
    """Networks of slots in this process, closed at the end of the test."""

    def __init__(self, credentials: Credentials) -> None:
        self.credentials = credentials
        self.networks: list[Network] = []

    def network(self, slot: int, attempt: int = 1, credentials: Credentials | None = None) -> Network:
        network = Network(credentials or self.credentials, attempt, "127.0.0.1")
        network.slot = slot
        self.networks.append(network)
        return network


@pytest.fixture(params=[PLAIN, TLS], ids=["plain", "tls"])
def slots(request: pytest.FixtureRequest) -> Iterator[Slots]:
    opened = Slots(request.param)
    yield opened
    for network in opened.networks:
        network.close()


class Channel:
    """Slot 0 sends on edge 5 to slot 1."""

    def __init__(self, slots: Slots) -> None:
        self.upstream, self.downstream = slots.network(0), slots.network(1)
        self.output: RemoteOutput = self.upstream.connect(self.downstream.address, 5, CODEC, 1)
        self.input: RemoteInput = self.downstream.inputs({(5, 0): CODEC}, DEADLINE_S)[5, 0]

    def pump(self) -> None:
        self.upstream.pump(1)
        self.downstream.pump(1)

    def pump_until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < deadline, "the condition did not come true"
            self.pump()

    def take(self, count: int) -> list[Element]:
        """The next elements, as a task takes them: pumping until they are there."""
        taken: list[Element] = []

        def take_one() -> bool:
            element = self.input.receive()
            if element is not None:
                taken.append(element)
            return len(taken) == count

        self.pump_until(take_one)
        return taken


@pytest.fixture
def channel(slots: Slots) -> Channel:
    return Channel(slots)


def until_lost(step: Callable[[], object]) -> None:
    """Does it again and again; ends by the PeerLostError that step raises."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        step()


def first_of(element: Element) -> int:
    assert isinstance(element, Records)
    return int(element.batch.column(0)[0].as_py())


def test_elements_arrive_in_order_and_whole(channel: Channel) -> None:
    sent: list[Element] = []
    for n in range(300):
        sent += [rows(n, count=n % 7 + 1, filling=b"f" * (n * 13 % 997)), Watermark(n)]
    sent += [Barrier(9, is_last=True), EndOfInput()]
    for element in sent:
        channel.output.send(element)
    for found, expected in zip(channel.take(len(sent)), sent, strict=True):
        if isinstance(expected, Records):
            assert isinstance(found, Records)
            assert found.batch.equals(expected.batch)
            np.testing.assert_array_equal(found.event_time, expected.event_time)
        else:
            assert found == expected


def test_a_frame_larger_than_every_buffer_arrives(channel: Channel) -> None:
    large = rows(0, count=4, filling=b"z" * (3 * CAPACITY_BYTES))
    channel.output.send(large)
    (found,) = channel.take(1)
    assert isinstance(found, Records)
    assert found.batch.equals(large.batch)


def test_a_channel_that_is_not_read_stops_its_sender_with_bounded_memory(channel: Channel) -> None:
    """The task behind does not take anything: what may be on its way is there, and no more."""
    sent = 0

    def is_full() -> bool:
        nonlocal sent
        while channel.output.has_room and sent < 10_000:
            channel.output.send(rows(sent, filling=b"b" * 100_000))
            sent += 1
        channel.downstream.pump(1)
        channel.upstream.pump(1)
        return (
            not channel.output.has_room and not channel.upstream.pump(20) and not channel.downstream.pump(20)
        )

    channel.pump_until(is_full)
    assert sent * 100_000 < channel.output.bound_bytes + 200_000
    assert channel.input._queued_bytes >= sent * 100_000, "all that was sent has come"

    assert [first_of(element) for element in channel.take(sent)] == list(range(sent))
    channel.pump_until(lambda: channel.output.has_room)
    channel.output.send(Watermark(1))
    assert channel.take(1) == [Watermark(1)]


def test_frames_behind_one_that_fills_the_channel_are_not_forgotten(channel: Channel) -> None:
    """Small ones come together in a TLS record, and no selector shows what is decrypted of it already."""
    channel.output.send(rows(0, filling=b"b" * 3_000_000))  # the socket is full: the others go as one
    for n in range(10):
        channel.output.send(rows(n + 1))
    assert [first_of(element) for element in channel.take(11)] == list(range(11))


def test_one_full_channel_holds_up_no_other(slots: Slots) -> None:
    first = Channel(slots)
    other_output = first.upstream.connect(first.downstream.address, 6, CODEC, 1)
    other_input = first.downstream.inputs({(6, 0): CODEC}, DEADLINE_S)[6, 0]
    while first.output.has_room:
        first.output.send(rows(0, filling=b"b" * 1_000_000))
        first.pump()
    other_output.send(Watermark(3))
    first.input = other_input
    assert first.take(1) == [Watermark(3)]


def test_a_stranger_without_the_secret_is_turned_away(slots: Slots) -> None:
    listening = slots.network(1)
    stranger = slots.network(0, credentials=replace(slots.credentials, secret=b"t" * 32))
    with pytest.raises(PeerLostError, match="slot 1 can't be reached"):
        stranger.connect(listening.address, 5, CODEC, 1)
    with pytest.raises(PeerLostError, match="slot 0 did not connect"):
        listening.inputs({(5, 0): CODEC}, 0.1)


def test_a_stale_attempt_is_turned_away_though_it_knows_the_secret(slots: Slots) -> None:
    listening = slots.network(1, attempt=4)
    old = slots.network(0, attempt=3)
    stale = old.connect(listening.address, 5, CODEC, 1)

    def send_and_pump() -> None:
        """A socket that is full for a moment is served by the pump only, as in a slot."""
        stale.send(rows(0, filling=b"b" * 100_000))
        old.pump(0)

    with pytest.raises(PeerLostError, match="slot 1 is gone"):
        until_lost(send_and_pump)
    with pytest.raises(PeerLostError, match="did not connect within"):
        listening.inputs({(5, 0): CODEC}, 0.1)
    output = slots.network(0, attempt=4).connect(listening.address, 5, CODEC, 1)
    assert output.has_room
    assert listening.inputs({(5, 0): CODEC}, DEADLINE_S).keys() == {(5, 0)}


def test_regression_a_stranger_who_says_nothing_holds_up_no_peer(slots: Slots) -> None:
    """Handshakes were taken one after another, so a silent connection kept every slot out for seconds."""
    listening = slots.network(1)
    with socket.create_connection(listening.address, timeout=DEADLINE_S):
        started = time.monotonic()
        slots.network(0).connect(listening.address, 5, CODEC, 1)
        assert listening.inputs({(5, 0): CODEC}, 5.0)
        assert time.monotonic() - started < 5 * slowness()


@pytest.mark.parametrize(
    "greeting",
    [{}, {"attempt": 1}, {"attempt": 1, "edge": None, "slot": 0}, {"attempt": 1, "edge": "x", "slot": 0}],
)
def test_a_greeting_that_makes_no_sense_ends_only_its_own_connection(
    slots: Slots, greeting: dict[str, object]
) -> None:
    listening = slots.network(1)
    with closing(connect(listening.address, slots.credentials, greeting, DEADLINE_S)) as odd:
        assert odd.recv(1) == b""
    slots.network(0).connect(listening.address, 5, CODEC, 1)
    assert listening.inputs({(5, 0): CODEC}, DEADLINE_S)


def test_a_missing_peer_is_named(slots: Slots) -> None:
    listening = slots.network(2)
    slots.network(0).connect(listening.address, 5, CODEC, 2)
    with pytest.raises(PeerLostError, match=r"^slot 1 did not connect within 0 s$"):
        listening.inputs({(5, 0): CODEC, (5, 1): CODEC}, 0.2)


def test_a_peer_that_is_not_there_is_named(slots: Slots) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        address = unused.getsockname()[:2]
    with pytest.raises(PeerLostError, match="slot 7 can't be reached"):
        slots.network(0).connect(address, 5, CODEC, 7)


def test_a_lost_upstream_is_noticed_after_what_it_sent(channel: Channel) -> None:
    channel.output.send(Watermark(1))
    assert channel.take(1) == [Watermark(1)]
    channel.upstream.close()
    with pytest.raises(PeerLostError, match="slot 0"):
        until_lost(lambda: channel.downstream.pump(10))


def test_a_lost_downstream_is_noticed_by_the_sender(channel: Channel) -> None:
    channel.downstream.close()

    def send() -> None:
        channel.output.send(rows(0, filling=b"b" * 100_000))
        channel.upstream.pump(1)

    with pytest.raises(PeerLostError, match="slot 1 is gone"):
        until_lost(send)


def test_half_a_frame_is_never_delivered(slots: Slots) -> None:
    """The sender dies in the middle of a frame."""
    listening = slots.network(1)
    greeting = {"attempt": 1, "edge": 5, "slot": 0}
    with closing(connect(listening.address, slots.credentials, greeting, DEADLINE_S)) as dying:
        received = listening.inputs({(5, 0): CODEC}, DEADLINE_S)[5, 0]
        frame = b"".join(CODEC.encode(rows(1, count=50)))
        dying.sendall(frame[:-1])
        listening.pump(50)
        assert received.receive() is None
    with pytest.raises(PeerLostError):
        until_lost(lambda: listening.pump(10))
    assert received.receive() is None


def test_a_frame_of_absurd_length_ends_the_channel(slots: Slots) -> None:
    listening = slots.network(1)
    greeting = {"attempt": 1, "edge": 5, "slot": 0}
    with closing(connect(listening.address, slots.credentials, greeting, DEADLINE_S)) as odd:
        listening.inputs({(5, 0): CODEC}, DEADLINE_S)
        odd.sendall(HEADER.pack(RECORDS, 0, 1 << 40))
        with pytest.raises(PeerLostError, match="a frame of 1099511627776 bytes"):
            until_lost(lambda: listening.pump(10))


def test_a_waiting_pump_is_woken_from_another_thread(slots: Slots) -> None:
    network = slots.network(0)
    started = time.monotonic()
    with ThreadPoolExecutor(1) as pool:
        pumped = pool.submit(network.pump, DEADLINE_S * 1000)
        network.wake()
        assert pumped.result(DEADLINE_S) is True
    assert time.monotonic() - started < DEADLINE_S / 2
    assert network.pump(0) is False, "a wake is for one pump"


def test_close_ends_the_listener_and_its_thread(slots: Slots) -> None:
    before = set(threading.enumerate())
    network = Network(PLAIN, 1, "127.0.0.1")
    (accepting,) = set(threading.enumerate()) - before
    address = network.address
    network.close()
    accepting.join(DEADLINE_S)
    assert not accepting.is_alive()
    with pytest.raises(OSError):  # noqa: PT011 - the system's own words
        socket.create_connection(address, timeout=1)
