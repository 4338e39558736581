"""A TLS connection behaves as a plain socket does, between two ends in this process."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.secured import write_certificate
from onceflow.runtime.sockets.tls_socket import TlsSocket

DEADLINE_S = 80
Ends = tuple[TlsSocket, ssl.SSLSocket]


@pytest.fixture(scope="module")
def ends(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ends]:
    folder: Path = tmp_path_factory.mktemp("tls")
    write_certificate(folder)
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(folder / "keystore.pem")
    asking = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    asking.load_verify_locations(folder / "ca.pem")
    ours, theirs = socket.socketpair()
    for end in (ours, theirs):
        end.settimeout(DEADLINE_S)
    accepted: list[ssl.SSLSocket] = []
    thread = threading.Thread(target=lambda: accepted.append(serving.wrap_socket(theirs, server_side=True)))
    thread.start()
    client = TlsSocket(asking.wrap_socket(ours, server_hostname="127.0.0.1"))
    thread.join(DEADLINE_S)
    yield client, accepted[0]
    client.close()
    accepted[0].close()


def _received(end: ssl.SSLSocket, count: int) -> bytes:
    got = b""
    while len(got) < count:
        more = end.recv(count - len(got))
        assert more
        got += more
    return got


@given(st.lists(st.integers(0, 40_000), min_size=1, max_size=6))
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_pieces_arrive_in_order_whatever_their_sizes(ends: Ends, sizes: list[int]) -> None:
    """They are sent as ProduceConnection sends them: what was not taken is sent again, from there on."""
    client, server = ends
    client.settimeout(DEADLINE_S)
    pieces = [bytes([number]) * size for number, size in enumerate(sizes) if size]
    whole = b"".join(pieces)
    got: list[bytes] = []
    thread = threading.Thread(target=lambda: got.append(_received(server, len(whole))))
    thread.start()
    left = [memoryview(piece) for piece in pieces]
    while left:
        sent = client.sendmsg(left)
        assert sent > 0
        while left and sent >= len(left[0]):
            sent -= len(left.pop(0))
        if sent:
            left[0] = left[0][sent:]
    thread.join(DEADLINE_S)
    assert got == [whole]


def test_nothing_there_is_a_blocking_error_and_all_that_is_there_comes_without_a_poll(ends: Ends) -> None:
    client, server = ends
    client.setblocking(False)
    target = bytearray(100_000)
    with pytest.raises(BlockingIOError):
        client.recv_into(memoryview(target))
    with pytest.raises(BlockingIOError):
        client.recv(10)
    server.sendall(b"a" * 60_000)
    got = 0
    while got < 60_000:
        try:
            got += client.recv_into(memoryview(target)[got:])
        except BlockingIOError:  # the rest is on its way
            continue
    assert target[:got] == b"a" * 60_000
    client.settimeout(DEADLINE_S)
    server.sendall(b"ready")
    assert client.recv(5) == b"ready"


def test_a_silent_end_is_a_timeout(ends: Ends) -> None:
    client, _ = ends
    client.settimeout(0.05)
    with pytest.raises(TimeoutError):
        client.recv(1)
