"""One connection to a broker that is played here: silence, an early end, an old broker."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from onceflow.connectors.kafka.protocol.broker_access import BrokerAccess
from onceflow.connectors.kafka.protocol.polling_connection import BrokerConnection
from onceflow.connectors.kafka.protocol.wire import ProtocolError

DEADLINE_S = 80
StartBroker = Callable[..., int]


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


@pytest.fixture
def broker() -> Iterator[StartBroker]:
    """`broker(highest, b"...")` speaks Fetch 4 to `highest` and answers the next request so; its port."""
    server = socket.create_server(("127.0.0.1", 0))
    server.settimeout(DEADLINE_S)
    held: list[socket.socket] = []
    threads: list[threading.Thread] = []

    def start(highest: int, answer: bytes, is_closed: bool = False) -> int:
        def serve() -> None:
            client, _ = server.accept()
            client.settimeout(DEADLINE_S)
            held.append(client)
            client.recv(1 << 16)
            client.sendall(framed(struct.pack(">ihihhh", 0, 0, 1, 1, 4, highest)))
            if client.recv(1 << 16):
                client.sendall(answer)
            if is_closed:
                client.close()

        threads.append(threading.Thread(target=serve))
        threads[-1].start()
        port: int = server.getsockname()[1]
        return port

    yield start
    for thread in threads:
        thread.join(DEADLINE_S)
    for one in [server, *held]:
        one.close()


def received(connection: BrokerConnection) -> bytes:
    deadline = time.monotonic() + DEADLINE_S
    connection.send(framed(b"question"))
    while (frame := connection.receive()) is None:
        assert time.monotonic() < deadline
    return frame.tobytes()


def test_an_answer_comes_whole(broker: StartBroker) -> None:
    connection = BrokerConnection("127.0.0.1", broker(18, framed(b"answer" * 50_000)), BrokerAccess("me"))
    assert received(connection) == b"answer" * 50_000
    assert not connection.is_waiting
    connection.close()


@pytest.mark.parametrize("answer", [b"", b"\0\0", framed(b"answer")[:-1]])
def test_a_silent_broker_is_noticed(broker: StartBroker, answer: bytes) -> None:
    connection = BrokerConnection("127.0.0.1", broker(18, answer), BrokerAccess("me"), silent_s_max=0.2)
    with pytest.raises(TimeoutError, match="has not answered"):
        received(connection)
    connection.close()


def test_a_broker_that_hangs_up_is_noticed(broker: StartBroker) -> None:
    connection = BrokerConnection(
        "127.0.0.1", broker(18, framed(b"answer")[:-1], is_closed=True), BrokerAccess("me")
    )
    with pytest.raises(ConnectionResetError):
        received(connection)
    connection.close()


def test_a_broker_that_does_not_speak_the_version_is_refused(broker: StartBroker) -> None:
    with pytest.raises(ProtocolError, match="speaks versions 4 to 12 of request 1, not 13"):
        BrokerConnection("127.0.0.1", broker(12, b""), BrokerAccess("me"))
