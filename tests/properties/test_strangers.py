"""Strangers at the ports of a running job: whatever they send, they get nothing, and the job goes on.

A real control server with a slot, and a real channel between two slots, on plain connections and on TLS. In
between, driver and slots go on saying things to each other, each of which has to arrive.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import socket
import ssl
import struct
import threading
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import psutil
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onceflow.runtime.clock import SystemClock
from onceflow.runtime.control.client import ControlClient
from onceflow.runtime.control.connection import encoded
from onceflow.runtime.control.messages import AskCancel, Running, ToDriver, Trigger
from onceflow.runtime.control.server import ControlServer
from onceflow.runtime.exchange.frames import FrameCodec
from onceflow.runtime.exchange.transport import Network
from onceflow.runtime.records import Records
from onceflow.runtime.sockets.certificate import new_identity
from onceflow.runtime.sockets.connect import connect
from onceflow.runtime.sockets.credentials import Credentials, tls_context
from onceflow.runtime.sockets.handshake import HandshakeError

pytestmark = pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")

SECRET = b"s" * 32
IDENTITY, STRANGERS_OWN = new_identity(), new_identity()
DEADLINE_S = 80
PATIENCE_S = 0.25
NONCE_FRAME_BYTES = 36
"""What a listener without TLS says first, to anybody: a length and a nonce."""
FUZZED = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
SCHEMA = pa.schema([("x", pa.int64())])
CODEC = FrameCodec(SCHEMA, has_event_time=True, has_key_hash=False, with_origin=False)
GREETING = {"attempt": 1, "edge": 5, "slot": 0, "role": "slot"}

Address = tuple[str, int]


class RunningJob:
    """A driver's end, a slot's end, and a channel between two slots, which a thread keeps busy."""

    def __init__(self, credentials: Credentials) -> None:
        self.credentials = credentials
        self._heard: queue.Queue[tuple[int, ToDriver]] = queue.Queue()
        self._lost: queue.Queue[int] = queue.Queue()
        self.server = ControlServer(
            credentials, "127.0.0.1", self._hear, self._lost.put, patience_s=PATIENCE_S
        )
        self._slot = ControlClient(self.server.address, credentials, SystemClock())
        self._upstream, self.network = (Network(credentials, 1, "127.0.0.1", PATIENCE_S) for _ in range(2))
        self._upstream.slot = 0
        self._output = self._upstream.connect(self.network.address, 5, CODEC, 1)
        self._input = self.network.inputs({(5, 0): CODEC}, DEADLINE_S)[5, 0]
        self._commanded = threading.Semaphore(0)
        self._slot.listen(self._commanded.release, lambda: None)
        self._turns, self._changed = 0, threading.Condition()
        self._is_over = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    @property
    def ports(self) -> Sequence[Address]:
        return self.server.address, self.network.address

    @property
    def turned_away(self) -> Counter[str]:
        return Counter(self.server.turned_away) + Counter(self.network.turned_away)

    def goes_on(self) -> None:
        """Wait until it has said and heard some more; whatever arrived wrongly is raised here."""
        with self._changed:
            goal = self._turns + 3
            self._changed.wait_for(lambda: self._turns >= goal or self._error is not None, DEADLINE_S)
            if self._error is not None:
                raise self._error
            assert self._turns >= goal, "the job stands still"
        assert self._lost.empty()

    def close(self) -> None:
        self._is_over.set()
        self._thread.join(DEADLINE_S)
        self._slot.close()
        for each in (self.server, self._upstream, self.network):
            each.close()

    def _hear(self, messages: Sequence[tuple[int, ToDriver]]) -> None:
        for message in messages:
            self._heard.put(message)

    def _work(self) -> None:
        try:
            while not self._is_over.is_set():
                self._take_turn(self._turns)
                with self._changed:
                    self._turns += 1
                    self._changed.notify_all()
        except BaseException as error:
            with self._changed:
                self._error = error
                self._changed.notify_all()

    def _take_turn(self, number: int) -> None:
        self._slot.send(Running(number))
        peer, message = self._heard.get(timeout=DEADLINE_S)
        assert message == Running(number)
        assert self.server.send(peer, Trigger(number, False))
        assert self._commanded.acquire(timeout=DEADLINE_S)
        assert self._slot.poll() == Trigger(number, False)
        times = np.full(50, number, np.int64)
        self._output.send(Records(pa.record_batch([pa.array(times)], schema=SCHEMA), times))
        deadline_s = time.monotonic() + DEADLINE_S
        while (element := self._input.receive()) is None:
            assert time.monotonic() < deadline_s, "the records did not arrive"
            self._upstream.pump(1)
            self.network.pump(1)
        assert isinstance(element, Records)
        assert element.batch.column(0).to_pylist() == [number] * 50


@pytest.fixture(
    scope="module",
    params=[Credentials(SECRET), Credentials(SECRET, IDENTITY)],
    ids=["plain", "tls"],
)
def job(request: pytest.FixtureRequest) -> Iterator[RunningJob]:
    running = RunningJob(request.param)
    yield running
    running.close()


@pytest.fixture(autouse=True)
def nothing_is_left(job: RunningJob) -> Iterator[None]:
    """No thread and no descriptor more than before, and the job goes on."""
    process = psutil.Process()
    job.goes_on()
    before = (threading.active_count(), process.num_fds())
    yield
    job.goes_on()
    deadline_s = time.monotonic() + DEADLINE_S
    while (threading.active_count(), process.num_fds()) > before:
        assert time.monotonic() < deadline_s, f"left behind: {threading.enumerate()}"
        time.sleep(0.01)


def told(stranger: socket.socket) -> bytes:
    """All that a stranger is told until the other side lets go of him, which it has to do."""
    stranger.settimeout(DEADLINE_S)
    heard = b""
    try:
        while more := stranger.recv(4096):
            heard += more
    except ConnectionError:
        pass
    return heard


def intrude(job: RunningJob, sent: bytes) -> None:
    """Send this to both ports, as one who sends no more; nothing of the job is told, and he is let go of."""
    for port in job.ports:
        with socket.create_connection(port, timeout=DEADLINE_S) as stranger:
            with contextlib.suppress(OSError):  # he may have been hung up on by then
                stranger.sendall(sent)
                stranger.shutdown(socket.SHUT_WR)
            heard = told(stranger)
        if job.credentials.tls is None:
            assert len(heard) <= NONCE_FRAME_BYTES
        else:
            assert len(heard) < 4_096, "more than the handshake of TLS"


def recorded(port: Address, credentials: Credentials) -> bytes:
    """All that one of the run's own processes says when it connects, as somebody on the way hears it."""
    said = b""
    with socket.create_server(("127.0.0.1", 0)) as relay:

        def pump(source: socket.socket, target: socket.socket, is_caller: bool) -> None:
            nonlocal said
            with contextlib.suppress(OSError):
                while block := source.recv(4096):
                    said += block if is_caller else b""
                    target.sendall(block)
            with contextlib.suppress(OSError):
                target.shutdown(socket.SHUT_RDWR)

        with contextlib.ExitStack() as stack:
            caller: list[object] = []
            calling = threading.Thread(
                target=lambda: caller.append(connect(relay.getsockname(), credentials, GREETING, DEADLINE_S))
            )
            calling.start()
            near = stack.enter_context(relay.accept()[0])
            far = stack.enter_context(socket.create_connection(port))
            pumps = [
                threading.Thread(target=pump, args=(near, far, True)),
                threading.Thread(target=pump, args=(far, near, False)),
            ]
            for each in pumps:
                each.start()
            calling.join(DEADLINE_S)
            caller[0].close()  # type: ignore[attr-defined]
            for each in pumps:
                each.join(DEADLINE_S)
    return said


@pytest.fixture(scope="module")
def transcript(job: RunningJob) -> bytes:
    """A whole good handshake, recorded on a listener with the same credentials."""
    network = Network(job.credentials, 1, "127.0.0.1")
    try:
        said = recorded(network.address, job.credentials)
    finally:
        network.close()
    assert len(said) > NONCE_FRAME_BYTES
    return said


@given(st.binary(max_size=2_048))
@FUZZED
def test_random_bytes(job: RunningJob, sent: bytes) -> None:
    intrude(job, sent)


@given(st.integers(0, 70_000), st.binary(max_size=512))
@FUZZED
def test_frames_of_any_length_with_random_bytes(job: RunningJob, length: int, body: bytes) -> None:
    intrude(job, struct.pack("<I", length) + body)


@given(st.data())
@FUZZED
def test_a_good_handshake_played_again_cut_or_changed(
    job: RunningJob, transcript: bytes, data: st.DataObject
) -> None:
    """He knows all that went over the wire at one handshake. The listener's nonce is new each time."""
    cut = data.draw(st.integers(1, len(transcript)))
    changed = bytearray(transcript[:cut])
    for _ in range(data.draw(st.integers(0, 2))):
        changed[data.draw(st.integers(0, cut - 1))] = data.draw(st.integers(0, 255))
    intrude(job, bytes(changed))


def test_a_good_handshake_played_again_as_it_was(job: RunningJob, transcript: bytes) -> None:
    before = job.turned_away
    intrude(job, transcript)
    assert sum((job.turned_away - before).values()) == 2


def test_a_good_handshake_played_again_with_a_command_behind_it(job: RunningJob, transcript: bytes) -> None:
    intrude(job, transcript + encoded(AskCancel()))


def test_a_flood_takes_no_memory(job: RunningJob) -> None:
    """He announces as much as there is, and sends what he can."""
    flood = struct.pack("<I", 0xFFFF) + bytes(1 << 20)
    tracemalloc.start()
    try:
        for port in job.ports:
            with socket.create_connection(port, timeout=DEADLINE_S) as stranger:
                with contextlib.suppress(ConnectionError):
                    for _ in range(32):
                        stranger.sendall(flood)
                told(stranger)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


def test_many_who_are_silent_or_say_a_byte_now_and_then(job: RunningJob) -> None:
    strangers = [socket.create_connection(port) for port in job.ports for _ in range(40)]
    job.goes_on()
    for number, stranger in enumerate(strangers):
        if number % 2:
            with contextlib.suppress(ConnectionError):
                stranger.sendall(b"\x16")
    for stranger in strangers:
        told(stranger)
        stranger.close()


WRONG: dict[str, Callable[[Credentials], Credentials]] = {
    "plain bytes to TLS, TLS to plain": lambda ours: Credentials(
        ours.secret, None if ours.tls is not None else IDENTITY
    ),
    "another secret": lambda ours: Credentials(b"t" * 32, ours.tls),
    "a certificate of his own": lambda ours: Credentials(ours.secret, STRANGERS_OWN),
}


@pytest.mark.parametrize("kind", WRONG)
def test_one_who_speaks_the_protocol_with_wrong_credentials(job: RunningJob, kind: str) -> None:
    before = job.turned_away
    for port in job.ports:
        with pytest.raises((HandshakeError, OSError)):
            connect(port, WRONG[kind](job.credentials), GREETING, DEADLINE_S)
    job.goes_on()
    deadline_s = time.monotonic() + DEADLINE_S
    while sum((job.turned_away - before).values()) < 2:
        assert time.monotonic() < deadline_s, "nobody was turned away"
        time.sleep(0.01)


def test_one_who_checks_no_certificate_and_has_one_of_his_own(job: RunningJob) -> None:
    """He hears no more than that he is not wanted."""
    careless = tls_context.__wrapped__(STRANGERS_OWN, is_server=False)
    careless.verify_mode = ssl.CERT_NONE
    for port in job.ports:
        heard = b""
        with (
            contextlib.suppress(OSError),
            socket.create_connection(port, timeout=DEADLINE_S) as opened,
            careless.wrap_socket(opened) as secured,
        ):
            heard = secured.recv(4096)
        assert heard == b""


def test_strangers_are_told_of_once_for_each_kind(job: RunningJob, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "onceflow")
    for _ in range(10):
        intrude(job, b"GET / HTTP/1.1\r\n\r\n")
        intrude(job, b"")
    messages = [record.getMessage().split(" was turned away from the ")[1] for record in caplog.records]
    assert len(messages) == len(set(messages)), messages
