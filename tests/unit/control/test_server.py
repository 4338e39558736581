"""The driver's end of the control connections, over real sockets."""

from __future__ import annotations

import queue
import socket
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import msgspec
import pytest

from onceflow.runtime.clock import SystemClock
from onceflow.runtime.control.client import ControlClient
from onceflow.runtime.control.connection import Connection, encoded
from onceflow.runtime.control.heartbeat import heartbeat_ms, silence_ms_max
from onceflow.runtime.control.messages import Failed, Running, Shutdown, ToDriver, ToSlot, Trigger
from onceflow.runtime.control.server import MANY_PEERS, ControlServer
from onceflow.runtime.errors import OptionError, Retryable, Unavailable
from onceflow.runtime.exchange.handshake import call
from tests.deployment_page import said

SECRET = b"s" * 32
DEADLINE_S = 20.0


class Heard:
    """What the server told, in order."""

    def __init__(self) -> None:
        self.messages: queue.Queue[tuple[int, ToDriver]] = queue.Queue()
        self.lost: queue.Queue[int] = queue.Queue()

    def hear(self, messages: Sequence[tuple[int, ToDriver]]) -> None:
        for message in messages:
            self.messages.put(message)


@contextmanager
def serving() -> Iterator[tuple[ControlServer, Heard]]:
    heard = Heard()
    server = ControlServer(SECRET, "127.0.0.1", heard.hear, heard.lost.put)
    try:
        yield server, heard
    finally:
        server.close()


def slot(server: ControlServer) -> ControlClient:
    return ControlClient(server.address, SECRET, SystemClock())


@pytest.mark.parametrize("peers", [50, MANY_PEERS + 1])
def test_messages_of_many_peers_arrive_each_under_its_own_number(peers: int) -> None:
    with serving() as (server, heard):
        clients = [slot(server) for _ in range(peers)]
        for attempt, client in enumerate(clients):
            client.send(Running(attempt))
        arrived = [heard.messages.get(timeout=DEADLINE_S) for _ in clients]
        assert len({peer for peer, _ in arrived}) == peers
        assert sorted(m.attempt for _, m in arrived if isinstance(m, Running)) == list(range(peers))
        for client in clients:
            client.close()
        assert {heard.lost.get(timeout=DEADLINE_S) for _ in clients} == {peer for peer, _ in arrived}


def test_messages_cut_and_joined_by_the_network_arrive_whole_and_in_order() -> None:
    with serving() as (server, heard):
        connection = socket.create_connection(server.address)
        call(connection, SECRET, {"role": "slot"})
        sent = [Failed(n, "x" * (n * 40_000), False) for n in range(12)]
        bodies = [msgspec.json.encode(message) for message in sent]
        stream = b"".join(struct.pack("<I", len(body)) + body for body in bodies)
        for cut in (1, 2, 3, 5, 7, 100_001):
            connection.sendall(stream[:cut])
            stream = stream[cut:]
        connection.sendall(stream)
        assert [heard.messages.get(timeout=DEADLINE_S)[1] for _ in sent] == sent
        connection.close()


def test_what_the_driver_sends_reaches_the_peer_and_a_hung_up_peer_is_told_of_as_lost() -> None:
    with serving() as (server, heard):
        client = slot(server)
        client.send(Running(1))
        peer, _ = heard.messages.get(timeout=DEADLINE_S)
        assert server.send(peer, Trigger(7, False))
        got: queue.Queue[None] = queue.Queue()
        ended: queue.Queue[None] = queue.Queue()
        client.listen(lambda: got.put(None), lambda: ended.put(None))
        got.get(timeout=DEADLINE_S)
        assert client.poll() == Trigger(7, False)
        server.hang_up(peer)
        ended.get(timeout=DEADLINE_S)
        assert heard.lost.get(timeout=DEADLINE_S) == peer
        assert not server.send(peer, Shutdown("late"))


def test_a_broadcast_reaches_each_peer_that_is_named_and_still_there() -> None:
    with serving() as (server, heard):
        connections = [socket.create_connection(server.address) for _ in range(4)]
        peers = []
        for connection in connections:
            call(connection, SECRET, {"role": "slot"})
            connection.sendall(encoded(Running(1)))
            peers.append(heard.messages.get(timeout=DEADLINE_S)[0])
        first, second, left_out, gone = (Connection[ToSlot](each, ToSlot) for each in connections)  # type: ignore[arg-type]
        for each in (first, second, left_out):
            each.set_timeout(DEADLINE_S)
        gone.close()
        assert heard.lost.get(timeout=DEADLINE_S) == peers[3]
        server.broadcast([peers[3], peers[0], peers[1]], Trigger(7, False))
        server.send(peers[2], Trigger(8, False))
        assert [each.receive() for each in (first, second)] == [Trigger(7, False)] * 2
        assert left_out.receive() == Trigger(8, False)
        for each in (first, second, left_out):
            each.close()


def test_a_stranger_is_turned_away_and_disturbs_nobody() -> None:
    with serving() as (server, heard):
        with pytest.raises(Retryable):
            ControlClient(server.address, b"w" * 32, SystemClock())
        silent = socket.create_connection(server.address)  # says nothing at all
        client = slot(server)
        client.send(Running(3))
        assert heard.messages.get(timeout=DEADLINE_S)[1] == Running(3)
        silent.close()


@pytest.mark.parametrize("garbage", [b"\xff\xff\xff\xff", struct.pack("<I", 2) + b"{]"])
def test_a_peer_that_talks_garbage_is_lost_and_the_others_are_heard(garbage: bytes) -> None:
    with serving() as (server, heard):
        connection = socket.create_connection(server.address)
        call(connection, SECRET, {"role": "slot"})
        connection.sendall(garbage)
        heard.lost.get(timeout=DEADLINE_S)
        client = slot(server)
        client.send(Running(3))
        assert heard.messages.get(timeout=DEADLINE_S)[1] == Running(3)


def test_closing_the_server_ends_every_connection() -> None:
    with serving() as (server, heard):
        client = slot(server)
        client.send(Running(1))
        heard.messages.get(timeout=DEADLINE_S)
        ended: queue.Queue[None] = queue.Queue()
        client.listen(lambda: None, lambda: ended.put(None))
        server.close()
        ended.get(timeout=DEADLINE_S)
        heard.lost.get(timeout=DEADLINE_S)


def test_it_listens_at_one_address_and_is_found_at_another() -> None:
    """Address translation wants it so; the port may be fixed."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server = ControlServer(SECRET, "localhost", lambda _: None, lambda _: None, ("0.0.0.0", port))
    assert server.address == ("localhost", port)
    slot(server).close()
    server.close()


def test_an_address_that_is_not_the_drivers_is_refused_in_one_sentence() -> None:
    with pytest.raises(OptionError) as refused:
        ControlServer(SECRET, "driver", lambda _: None, lambda _: None, ("203.0.113.77", 0))
    assert said("an address of the driver's own").match(str(refused.value)), str(refused.value)


def test_a_port_that_is_taken_is_refused_in_one_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = taken.getsockname()
        with pytest.raises(OptionError, match="Address already in use; choose another --control-port"):
            ControlServer(SECRET, "driver", lambda _: None, lambda _: None, address)


def test_a_driver_that_can_not_be_reached_is_something_outside_that_can_not_be_used() -> None:
    with serving() as (server, _):
        address = server.address
    with pytest.raises(Unavailable) as unreached:
        ControlClient(address, SECRET, SystemClock())
    assert said("a way from slots to onceflow's port").fullmatch(str(unreached.value)), str(unreached.value)


def test_more_slots_speak_less_often_and_are_given_more_time() -> None:
    assert heartbeat_ms(1) == heartbeat_ms(100) == 1_000
    assert heartbeat_ms(1_000) == 10_000
    assert silence_ms_max(4, 30_000) == 30_000
    assert silence_ms_max(4, 500) == 3_000
    assert silence_ms_max(2_000, 30_000) == 60_000
