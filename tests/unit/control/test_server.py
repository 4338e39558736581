"""The driver's end of the control connections, over real sockets."""

from __future__ import annotations

import queue
import socket
import struct
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import msgspec
import pytest

from onceflow.runtime.clock import SystemClock
from onceflow.runtime.control.client import ControlClient
from onceflow.runtime.control.connection import Connection, ConnectionLostError, encoded
from onceflow.runtime.control.heartbeat import heartbeat_ms, silence_ms_max
from onceflow.runtime.control.messages import Failed, Running, Shutdown, ToDriver, ToSlot, Trigger
from onceflow.runtime.control.server import MANY_PEERS, ControlServer
from onceflow.runtime.errors import OptionError, Unavailable
from onceflow.runtime.sockets.certificate import new_identity
from onceflow.runtime.sockets.connect import connect
from onceflow.runtime.sockets.credentials import Credentials
from onceflow.runtime.sockets.tls_socket import Connected
from tests.deployment_page import said

PLAIN = Credentials(b"s" * 32)
TLS = Credentials(b"s" * 32, new_identity())
DEADLINE_S = 80


class Heard:
    """What the server told, in order."""

    def __init__(self) -> None:
        self.messages: queue.Queue[tuple[int, ToDriver]] = queue.Queue()
        self.lost: queue.Queue[int] = queue.Queue()

    def hear(self, messages: Sequence[tuple[int, ToDriver]]) -> None:
        for message in messages:
            self.messages.put(message)


@pytest.fixture(params=[PLAIN, TLS], ids=["plain", "tls"])
def credentials(request: pytest.FixtureRequest) -> Credentials:
    kind: Credentials = request.param
    return kind


@contextmanager
def serving(credentials: Credentials = PLAIN) -> Iterator[tuple[ControlServer, Heard]]:
    heard = Heard()
    server = ControlServer(credentials, "127.0.0.1", heard.hear, heard.lost.put)
    try:
        yield server, heard
    finally:
        server.close()


def slot(server: ControlServer, credentials: Credentials = PLAIN) -> ControlClient:
    return ControlClient(server.address, credentials, SystemClock())


def peer_of(server: ControlServer, credentials: Credentials = PLAIN) -> Connected:
    """A slot's connection below its messages."""
    opened = connect(server.address, credentials, {"role": "slot"}, DEADLINE_S)
    opened.settimeout(DEADLINE_S)
    return opened


@pytest.mark.parametrize("peers", [50, MANY_PEERS + 1])
def test_messages_of_many_peers_arrive_each_under_its_own_number(
    peers: int, credentials: Credentials
) -> None:
    with serving(credentials) as (server, heard):
        clients = [slot(server, credentials) for _ in range(peers)]
        for attempt, client in enumerate(clients):
            client.send(Running(attempt))
        arrived = [heard.messages.get(timeout=DEADLINE_S) for _ in clients]
        assert len({peer for peer, _ in arrived}) == peers
        assert sorted(m.attempt for _, m in arrived if isinstance(m, Running)) == list(range(peers))
        for client in clients:
            client.close()
        assert {heard.lost.get(timeout=DEADLINE_S) for _ in clients} == {peer for peer, _ in arrived}


def test_messages_cut_and_joined_by_the_network_arrive_whole_and_in_order(credentials: Credentials) -> None:
    with serving(credentials) as (server, heard):
        connection = peer_of(server, credentials)
        sent = [Failed(n, "x" * (n * 40_000), False) for n in range(12)]
        bodies = [msgspec.json.encode(message) for message in sent]
        stream = b"".join(struct.pack("<I", len(body)) + body for body in bodies)
        for cut in (1, 2, 3, 5, 7, 100_001):
            connection.sendall(stream[:cut])
            stream = stream[cut:]
        connection.sendall(stream)
        assert [heard.messages.get(timeout=DEADLINE_S)[1] for _ in sent] == sent
        connection.close()


def test_what_the_driver_sends_reaches_the_peer_and_a_hung_up_peer_is_told_of_as_lost(
    credentials: Credentials,
) -> None:
    with serving(credentials) as (server, heard):
        client = slot(server, credentials)
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
        connections = [peer_of(server) for _ in range(4)]
        peers = []
        for connection in connections:
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
        with pytest.raises(Unavailable):
            ControlClient(server.address, Credentials(b"w" * 32), SystemClock())
        silent = socket.create_connection(server.address)  # says nothing at all
        client = slot(server)
        client.send(Running(3))
        assert heard.messages.get(timeout=DEADLINE_S)[1] == Running(3)
        silent.close()


@pytest.mark.parametrize("garbage", [b"\xff\xff\xff\xff", struct.pack("<I", 2) + b"{]"])
def test_a_peer_that_talks_garbage_is_lost_and_the_others_are_heard(garbage: bytes) -> None:
    with serving() as (server, heard):
        connection = peer_of(server)
        connection.sendall(garbage)
        heard.lost.get(timeout=DEADLINE_S)
        client = slot(server)
        client.send(Running(3))
        assert heard.messages.get(timeout=DEADLINE_S)[1] == Running(3)


def test_closing_the_server_ends_every_connection(credentials: Credentials) -> None:
    with serving(credentials) as (server, heard):
        client = slot(server, credentials)
        client.send(Running(1))
        heard.messages.get(timeout=DEADLINE_S)
        ended: queue.Queue[None] = queue.Queue()
        client.listen(lambda: None, lambda: ended.put(None))
        server.close()
        ended.get(timeout=DEADLINE_S)
        heard.lost.get(timeout=DEADLINE_S)


def test_both_sides_send_a_lot_at_once_while_each_reads(credentials: Credentials) -> None:
    """A TLS connection can't be in two calls at once: whoever waits for room must let the other read."""
    with serving(credentials) as (server, heard):
        client = slot(server, credentials)
        client.send(Running(0))
        peer, _ = heard.messages.get(timeout=DEADLINE_S)
        got: queue.Queue[None] = queue.Queue()
        client.listen(lambda: got.put(None), lambda: None)
        filling, count = "x" * 400_000, 40
        threads = [
            threading.Thread(target=lambda: [client.send(Failed(n, filling, False)) for n in range(count)]),
            threading.Thread(target=lambda: [server.send(peer, Shutdown(filling)) for _ in range(count)]),
        ]
        for thread in threads:
            thread.start()
        for n in range(count):
            assert heard.messages.get(timeout=DEADLINE_S)[1] == Failed(n, filling, False)
            got.get(timeout=DEADLINE_S)
            assert client.poll() == Shutdown(filling)
        for thread in threads:
            thread.join(DEADLINE_S)
        client.close()


def test_a_peer_that_is_silent_is_lost_after_the_timeout_and_for_good(credentials: Credentials) -> None:
    with serving(credentials) as (server, _):
        sending = Connection[ToSlot](peer_of(server, credentials), ToSlot)  # type: ignore[arg-type]
        sending.set_timeout(0.05)
        with pytest.raises(ConnectionLostError, match="timed out"):
            sending.receive()
        sending.close()
        with pytest.raises(ConnectionLostError):
            sending.send(Running(1))


def test_it_listens_at_one_address_and_is_found_at_another() -> None:
    """Address translation wants it so; the port may be fixed."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server = ControlServer(PLAIN, "localhost", lambda _: None, lambda _: None, ("0.0.0.0", port))
    assert server.address == ("localhost", port)
    ControlClient(("127.0.0.1", port), PLAIN, SystemClock()).close()
    server.close()


def test_an_address_that_is_not_the_drivers_is_refused_in_one_sentence() -> None:
    with pytest.raises(OptionError) as refused:
        ControlServer(PLAIN, "driver", lambda _: None, lambda _: None, ("203.0.113.77", 0))
    assert said("an address of the driver's own").match(str(refused.value)), str(refused.value)


def test_a_port_that_is_taken_is_refused_in_one_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = taken.getsockname()
        with pytest.raises(OptionError, match="Address already in use; choose another --control-port"):
            ControlServer(PLAIN, "driver", lambda _: None, lambda _: None, address)


def test_a_driver_that_can_not_be_reached_is_something_outside_that_can_not_be_used() -> None:
    with serving() as (server, _):
        address = server.address
    with pytest.raises(Unavailable) as unreached:
        ControlClient(address, PLAIN, SystemClock())
    assert said("a way from slots to onceflow's port").fullmatch(str(unreached.value)), str(unreached.value)


def test_more_slots_speak_less_often_and_are_given_more_time() -> None:
    assert heartbeat_ms(1) == heartbeat_ms(100) == 1_000
    assert heartbeat_ms(1_000) == 10_000
    assert silence_ms_max(4, 30_000) == 30_000
    assert silence_ms_max(4, 500) == 3_000
    assert silence_ms_max(2_000, 30_000) == 60_000
