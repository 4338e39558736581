"""Who is let in, who is turned away, and that neither waits for the other. What strangers send is fuzzed in
tests/properties/test_strangers.py."""

from __future__ import annotations

import contextlib
import logging
import queue
import socket
import struct
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from onceflow.runtime.errors import UsageError
from onceflow.runtime.sockets.certificate import new_identity
from onceflow.runtime.sockets.connect import connect
from onceflow.runtime.sockets.credentials import Credentials
from onceflow.runtime.sockets.handshake import HandshakeError
from onceflow.runtime.sockets.listener import Listener
from onceflow.runtime.sockets.tls_socket import Connected

PLAIN = Credentials(b"s" * 32)
TLS = Credentials(b"s" * 32, new_identity())
DEADLINE_S = 80

Welcomed = queue.Queue[tuple[Connected, Mapping[str, Any]]]


@contextlib.contextmanager
def listening(credentials: Credentials, **options: Any) -> Iterator[tuple[Listener, Welcomed]]:
    welcomed: Welcomed = queue.Queue()
    listener = Listener("127.0.0.1", credentials, "test", lambda *who: welcomed.put(who), **options)
    try:
        yield listener, welcomed
    finally:
        listener.close()
        while not welcomed.empty():
            welcomed.get()[0].close()


def is_hung_up(stranger: socket.socket) -> bool:
    """Whether the other side lets go of it, before the deadline."""
    stranger.settimeout(DEADLINE_S)
    try:
        while stranger.recv(4096):
            pass
    except ConnectionError:
        pass
    return True


def wait_counted(listener: Listener, expected: Mapping[str, int]) -> None:
    """Who is hung up on sees it before he is counted."""
    deadline_s = time.monotonic() + DEADLINE_S
    while dict(listener.turned_away) != expected:
        assert time.monotonic() < deadline_s, listener.turned_away
        time.sleep(0.005)


@pytest.mark.parametrize("credentials", [PLAIN, TLS], ids=["plain", "tls"])
def test_one_of_the_run_is_welcomed_with_its_greeting(credentials: Credentials) -> None:
    with listening(credentials) as (listener, welcomed):
        caller = connect(listener.address, credentials, {"role": "slot", "n": 3}, DEADLINE_S)
        connection, greeting = welcomed.get(timeout=DEADLINE_S)
        assert greeting == {"role": "slot", "n": 3}
        connection.sendall(b"hello")
        assert caller.recv(5) == b"hello"
        caller.close()
        assert not listener.turned_away


def test_it_listens_on_the_one_address_that_it_is_given() -> None:
    with listening(PLAIN) as (listener, _):
        host, port = listener.address
        assert host == "127.0.0.1"
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.2", port), timeout=DEADLINE_S)


@pytest.mark.parametrize("host", ["", "0.0.0.0", "::", "192.0.2.99"])
def test_an_address_that_is_none_of_this_machines_or_all_of_them_is_refused_by_name(host: str) -> None:
    with pytest.raises(UsageError, match=f"can't listen on '?{host}"):
        Listener(host, PLAIN, "test", lambda *_: None)


def test_who_takes_long_is_hung_up_on_and_the_others_do_not_wait_for_him() -> None:
    with listening(PLAIN, patience_s=0.1) as (listener, welcomed):
        silent = socket.create_connection(listener.address)
        connect(listener.address, PLAIN, {}, DEADLINE_S).close()
        welcomed.get(timeout=DEADLINE_S)[0].close()
        assert is_hung_up(silent)
        wait_counted(listener, {"it took longer than 0.1 s": 1})
        silent.close()


def test_who_says_a_byte_now_and_then_is_hung_up_on_too() -> None:
    """The time is that of the whole handshake, and each wait is shorter."""
    with listening(PLAIN, patience_s=0.3) as (listener, _):
        dripping = socket.create_connection(listener.address)
        dripping.sendall(struct.pack("<I", 60_000))
        assert dripping.recv(64)
        dripping.settimeout(0.03)
        deadline_s = time.monotonic() + DEADLINE_S
        with contextlib.suppress(ConnectionError):
            while True:
                assert time.monotonic() < deadline_s, "nobody hung up on it"
                dripping.sendall(b"x")
                with contextlib.suppress(TimeoutError):
                    assert dripping.recv(64) == b""
                    break
        dripping.close()
        wait_counted(listener, {"it took longer than 0.3 s": 1})


@pytest.mark.parametrize("credentials", [PLAIN, TLS], ids=["plain", "tls"])
def test_when_many_are_silent_those_who_take_longest_make_room(credentials: Credentials) -> None:
    """There are ten times as many as there is room for."""
    with listening(credentials, handshakes_max=4, patience_s=0.05) as (listener, welcomed):
        silent = [socket.create_connection(listener.address) for _ in range(40)]
        caller = connect(listener.address, credentials, {"n": 1}, DEADLINE_S)
        assert welcomed.get(timeout=DEADLINE_S)[1] == {"n": 1}
        greeting = [t for t in threading.enumerate() if t.name == "onceflow-greet-test"]
        assert len(greeting) <= 5
        for each in silent:
            each.close()
        caller.close()


def test_each_kind_of_stranger_is_told_of_once_and_all_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "onceflow")
    with listening(PLAIN) as (listener, _):
        for _ in range(5):
            with pytest.raises((HandshakeError, OSError)):
                connect(listener.address, Credentials(b"t" * 32), {}, DEADLINE_S)
            with socket.create_connection(listener.address) as stranger:
                stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
                assert is_hung_up(stranger)
        assert sum(listener.turned_away.values()) == 10
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 3, told
    assert sum("could not prove that it belongs" in each for each in told) == 2
    assert sum("speaks another protocol" in each for each in told) == 2
    assert told[-1].startswith("turned away from the test port: 5 because")


def test_closing_hangs_up_on_whoever_has_not_proven_himself_and_leaves_no_thread() -> None:
    before = set(threading.enumerate())
    with listening(PLAIN) as (listener, _):
        silent = socket.create_connection(listener.address)
        assert silent.recv(36)  # its handshake has begun
        mine = set(threading.enumerate()) - before
        assert len(mine) == 2
    assert is_hung_up(silent)
    silent.close()
    for thread in mine:
        thread.join(DEADLINE_S)
        assert not thread.is_alive()
