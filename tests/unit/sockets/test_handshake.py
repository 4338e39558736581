"""Who knows the secret gets in; who does not, learns nothing and can replay nothing."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from onceflow.runtime.sockets.handshake import HandshakeError, answer, call

SECRET = b"s" * 32
GREETING = {"attempt": 3, "edge": 1, "slot": 0}


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    caller, listener = socket.socketpair()
    for end in (caller, listener):
        end.settimeout(5)
    yield caller, listener
    caller.close()
    listener.close()


def outcomes(*sides: Callable[[], Any]) -> list[Any]:
    """What each side returned or raised; both run at once, and a side that fails hangs up."""

    def run(side: Callable[[], Any]) -> Any:
        try:
            return side()
        except (HandshakeError, OSError) as error:
            return error

    with ThreadPoolExecutor(len(sides)) as pool:
        return list(pool.map(run, sides))


def closing(end: socket.socket, side: Callable[[], Any]) -> Callable[[], Any]:
    def run() -> Any:
        try:
            return side()
        except (HandshakeError, OSError):
            end.close()
            raise

    return run


def test_both_sides_with_the_secret_come_together(ends: tuple[socket.socket, socket.socket]) -> None:
    caller, listener = ends
    assert outcomes(lambda: call(caller, SECRET, GREETING), lambda: answer(listener, SECRET)) == [
        None,
        GREETING,
    ]


@pytest.mark.parametrize("secret", [b"t" * 32, b"", SECRET[:-1]])
def test_a_caller_with_another_secret_is_turned_away(
    ends: tuple[socket.socket, socket.socket], secret: bytes
) -> None:
    caller, listener = ends
    called, answered = outcomes(
        lambda: call(caller, secret, GREETING), closing(listener, lambda: answer(listener, SECRET))
    )
    assert isinstance(called, HandshakeError | OSError)
    assert isinstance(answered, HandshakeError)
    assert "could not prove" in str(answered)


def test_a_listener_with_another_secret_is_not_believed(ends: tuple[socket.socket, socket.socket]) -> None:
    """It cannot check the caller either; here it pretends to have done so."""
    caller, listener = ends

    def pretend() -> None:
        send(listener, b"n" * 32)
        receive(listener)
        send(listener, b"p" * 32)

    called, _ = outcomes(lambda: call(caller, SECRET, GREETING), pretend)
    assert isinstance(called, HandshakeError)
    assert "could not prove" in str(called)


def test_what_a_stranger_has_overheard_opens_nothing(ends: tuple[socket.socket, socket.socket]) -> None:
    """A relay records a whole handshake; the recording is played to the listener again."""
    caller, relay_in = ends
    relay_out, listener = socket.socketpair()
    overheard: list[bytes] = []

    def relay() -> None:
        send(relay_in, receive(relay_out))
        overheard.append(receive(relay_in))
        send(relay_out, overheard[0])
        send(relay_in, receive(relay_out))

    done = outcomes(lambda: call(caller, SECRET, GREETING), relay, lambda: answer(listener, SECRET))
    assert done[2] == GREETING
    again_out, again_in = socket.socketpair()

    def replay() -> None:
        receive(again_out)
        send(again_out, overheard[0])

    _, answered = outcomes(replay, lambda: answer(again_in, SECRET))
    assert isinstance(answered, HandshakeError)
    for end in (relay_out, listener, again_out, again_in):
        end.close()


def test_a_listener_that_echoes_the_callers_proof_is_not_believed(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    """A proof names its role: what the caller has just sent is no answer to it."""
    caller, listener = ends

    def echo() -> None:
        send(listener, b"n" * 32)
        send(listener, receive(listener)[32:64])

    called, _ = outcomes(lambda: call(caller, SECRET, GREETING), echo)
    assert isinstance(called, HandshakeError)
    assert "could not prove" in str(called)


def test_the_greeting_cannot_be_changed_on_its_way(ends: tuple[socket.socket, socket.socket]) -> None:
    caller, relay_in = ends
    relay_out, listener = socket.socketpair()

    def relay() -> None:
        send(relay_in, receive(relay_out))
        send(relay_out, receive(relay_in).replace(b'"slot": 0', b'"slot": 1'))

    def hang_up_later() -> Any:
        try:
            return answer(listener, SECRET)
        finally:
            relay_in.close()

    answered = outcomes(lambda: call(caller, SECRET, GREETING), relay, hang_up_later)[2]
    assert isinstance(answered, HandshakeError)
    relay_out.close()
    listener.close()


@pytest.mark.parametrize(
    "bytes_sent", [b"GET / HTTP/1.1\r\n\r\n", struct.pack("<I", 1 << 30), struct.pack("<I", 3) + b"abc", b""]
)
def test_whatever_a_stranger_sends_it_is_turned_away(
    ends: tuple[socket.socket, socket.socket], bytes_sent: bytes
) -> None:
    stranger, listener = ends

    def knock() -> None:
        stranger.sendall(bytes_sent)
        stranger.shutdown(socket.SHUT_WR)

    answered = outcomes(knock, lambda: answer(listener, SECRET))[1]
    assert isinstance(answered, HandshakeError)


def test_a_stranger_who_says_nothing_is_not_waited_for_for_ever(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    listener = ends[1]
    listener.settimeout(0.05)
    started = threading.Event()

    def wait() -> Any:
        started.set()
        return answer(listener, SECRET)

    assert isinstance(outcomes(wait)[0], TimeoutError)


def send(end: socket.socket, frame: bytes) -> None:
    end.sendall(struct.pack("<I", len(frame)) + frame)


def receive(end: socket.socket) -> bytes:
    end.settimeout(5)
    (length,) = struct.unpack("<I", end.recv(4, socket.MSG_WAITALL))
    return end.recv(length, socket.MSG_WAITALL)
