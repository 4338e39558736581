"""The login at a broker whose part is played here: what it refuses, and what it can not prove."""

from __future__ import annotations

import base64
import hashlib
import hmac
import math
import struct
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceflow.connectors.kafka.protocol.sasl_login import SaslLogin, login_of
from onceflow.connectors.kafka.protocol.wire import ProtocolError

USER, PASSWORD, SALT, ROUNDS = "me", "secret-4711", b"salt", 4_096
HANDSHAKE, AUTHENTICATE = 17, 36


def login(mechanism: str, **more: Any) -> SaslLogin:
    found = login_of({"sasl.mechanism": mechanism, "sasl.username": USER, "sasl.password": PASSWORD, **more})
    assert found is not None
    return found


def text(value: str | None) -> bytes:
    return struct.pack(">h", -1) if value is None else struct.pack(">h", len(value)) + value.encode()


class Broker:
    """Answers the two requests; `reply(number, said)` is what it says to each part of the mechanism."""

    def __init__(self, reply: Callable[[int, bytes], bytes], **faults: Any) -> None:
        self._reply = reply
        self._faults = faults
        self.asked: list[bytes] = []

    def __call__(self, request: bytes) -> memoryview:
        (length,) = struct.unpack_from(">i", request)
        assert length == len(request) - 4
        api, version, correlation_id, name = struct.unpack_from(">hhih", request, 4)
        body = request[14 + name :]
        assert version == 1
        if api == HANDSHAKE:
            offered = self._faults.get("offers")
            mechanisms = [body[2:].decode()] if offered is None else offered
            listed = struct.pack(">i", len(mechanisms)) + b"".join(map(text, mechanisms))
            return memoryview(struct.pack(">ih", correlation_id, 33 if offered else 0) + listed)
        assert api == AUTHENTICATE
        self.asked.append(body[4:])
        error, why = self._faults.get("refuses", (0, None))
        said = self._reply(len(self.asked), body[4:])
        answer = struct.pack(">ih", correlation_id, error) + text(why) + struct.pack(">i", len(said)) + said
        return memoryview(answer + struct.pack(">q", self._faults.get("good_ms", 0)))


def scram(digest: str, password: str = PASSWORD) -> Callable[[int, bytes], bytes]:
    """RFC 5802's server, which knows this password."""
    kept: list[bytes] = []

    def sign(key: bytes, message: bytes) -> bytes:
        return hmac.new(key, message, digest).digest()

    def reply(number: int, said: bytes) -> bytes:
        if number == 1:
            bare = said.removeprefix(b"n,,")
            nonce = bare.split(b"r=")[1] + b"server"
            first = b"r=%s,s=%s,i=%d" % (nonce, base64.b64encode(SALT), ROUNDS)
            kept[:] = [bare, first]
            return first
        without_proof, proof = said.split(b",p=")
        salted = hashlib.pbkdf2_hmac(digest, password.encode(), SALT, ROUNDS)
        message = b",".join([*kept, without_proof])
        client_key = sign(salted, b"Client Key")
        signature = sign(hashlib.new(digest, client_key).digest(), message)
        if password == PASSWORD:
            assert bytes(a ^ b for a, b in zip(base64.b64decode(proof), signature, strict=True)) == client_key
        return b"v=" + base64.b64encode(sign(sign(salted, b"Server Key"), message))

    return reply


def test_a_password_is_said_once() -> None:
    broker = Broker(lambda number, said: b"")
    assert login("PLAIN").exchange(broker, "client") == math.inf
    assert broker.asked == [b"me\0me\0secret-4711"]


@pytest.mark.parametrize(("mechanism", "digest"), [("SCRAM-SHA-256", "sha256"), ("SCRAM-SHA-512", "sha512")])
def test_with_scram_each_side_proves_that_it_knows_the_password(mechanism: str, digest: str) -> None:
    broker = Broker(scram(digest), good_ms=5_000)
    assert login(mechanism).exchange(broker, "client") == 5.0
    assert not any(PASSWORD.encode() in said for said in broker.asked)


def test_a_broker_that_does_not_know_the_password_is_no_broker_of_ours() -> None:
    with pytest.raises(ProtocolError, match="SCRAM-SHA-256 is wrong"):
        login("SCRAM-SHA-256").exchange(Broker(scram("sha256", "another")), "client")


def test_a_token_comes_from_the_users_function_with_its_extensions() -> None:
    given: list[str] = []

    def token(config: str) -> tuple[str, float, str, dict[str, str]]:
        given.append(config)
        return "abc", 1e12, "principal", {"tenant": "seven"}

    broker = Broker(lambda number, said: b"")
    oauth = login("OAUTHBEARER", oauth_cb=token, **{"sasl.oauthbearer.config": "scope=x"})
    oauth.exchange(broker, "client")
    assert given == ["scope=x"]
    assert broker.asked == [b"n,,\x01auth=Bearer abc\x01tenant=seven\x01\x01"]


def test_what_the_broker_offers_instead_is_said() -> None:
    with pytest.raises(ProtocolError, match="no logins by PLAIN, but by GSSAPI, SCRAM-SHA-512"):
        login("PLAIN").exchange(Broker(lambda n, s: b"", offers=["GSSAPI", "SCRAM-SHA-512"]), "client")


def test_a_refused_login_says_why_and_no_secret() -> None:
    broker = Broker(lambda n, s: b"", refuses=(58, "Authentication failed: wrong"))
    with pytest.raises(ProtocolError, match="refuses the login by PLAIN: Authentication failed") as raised:
        login("PLAIN").exchange(broker, "client")
    assert PASSWORD not in str(raised.value)


@given(st.lists(st.binary(max_size=40), max_size=6))
def test_garbage_is_a_protocol_error_and_nothing_else(frames: list[bytes]) -> None:
    left = iter(frames)
    with pytest.raises(ProtocolError):
        login("SCRAM-SHA-256").exchange(lambda request: memoryview(next(left, b"")), "client")


@given(st.integers(0, 100))
def test_an_answer_that_is_cut_off_is_a_protocol_error(cut: int) -> None:
    broker = Broker(lambda number, said: b"")
    answers: list[int] = []

    def ask(request: bytes) -> memoryview:
        whole = broker(request)
        answers.append(len(whole))
        return whole[:cut]

    try:
        login("PLAIN").exchange(ask, "client")
    except ProtocolError:
        assert cut < max(answers)
    else:
        assert cut >= max(answers)
