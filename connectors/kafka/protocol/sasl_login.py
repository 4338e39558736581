"""SaslLogin: how a user proves to a broker who it is (SASL: RFC 4422, and KIP-43, KIP-152, KIP-368).

The mechanisms themselves are kafka-python's. Pure: no socket; `exchange` is given what asks the broker.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from onceflow.connectors.kafka.protocol.wire import ProtocolError, framed, header

_HANDSHAKE, _AUTHENTICATE = 17, 36
_VERSION = 1
"""The version in which both requests are spoken."""
_BY_PASSWORD = frozenset({"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"})
_BY_TOKEN = "OAUTHBEARER"
_ROUNDS_MAX = 5

Ask = Callable[[bytes], memoryview]
"""Sends a request, framed, and returns the answer without its length."""


@dataclass(frozen=True, slots=True)
class SaslLogin:
    """A mechanism and what it needs. Its text shows no secret."""

    mechanism: str
    config: Mapping[str, Any]
    """The settings of kafka-python's mechanism; see `for_kafka_python`."""

    def __repr__(self) -> str:
        return f"SaslLogin({self.mechanism!r})"

    def for_kafka_python(self) -> Mapping[str, Any]:
        """The settings of its mechanisms and clients, which take a token only from a class that they know."""
        # Here, since the package takes a tenth of a CPU-second, which a process without logins can save.
        from kafka.net.sasl.oauth import AbstractTokenProvider

        AbstractTokenProvider.register(_Token)
        return self.config

    def exchange(self, ask: Ask, client_id: str) -> float:
        """Logs in, on a connection on which only ApiVersions was asked before. Returns for how many seconds
        the login is good; infinity: as long as the connection. Raises ProtocolError if it is refused, or if
        the broker does not prove that it knows the password (SCRAM)."""
        answer = _Answer(ask(framed(header(_HANDSHAKE, _VERSION, 0, client_id) + _text(self.mechanism))))
        if answer.int16():
            offered = ", ".join(answer.texts())
            raise ProtocolError(f"the broker takes no logins by {self.mechanism}, but by {offered}")
        mechanism = _mechanism(self.mechanism, self.for_kafka_python())
        for number in range(1, _ROUNDS_MAX + 1):
            said: bytes = mechanism.auth_bytes()
            body = struct.pack(">i", len(said)) + said
            answer = _Answer(ask(framed(header(_AUTHENTICATE, _VERSION, number, client_id) + body)))
            error, why, back, good_ms = answer.int16(), answer.text(), answer.raw(), answer.int64()
            if error:
                raise ProtocolError(f"the broker refuses the login by {self.mechanism}: {why or error}")
            try:
                mechanism.receive(back)
            except (ValueError, KeyError) as wrong:
                raise ProtocolError(f"the broker's part of {self.mechanism} is wrong: {wrong}") from wrong
            if mechanism.is_done():
                if not mechanism.is_authenticated():
                    break
                return good_ms / 1000 if good_ms > 0 else math.inf
        raise ProtocolError(f"the login by {self.mechanism} came to no end")


def login_of(settings: Mapping[str, Any]) -> SaslLogin | None:
    """The login that librdkafka's settings ask for; None: only librdkafka can (Kerberos, a token that it
    fetches itself, a name which SCRAM would have to escape)."""
    mechanism = mechanism_of(settings)
    if mechanism == _BY_TOKEN and callable(settings.get("oauth_cb")):
        config = str(settings.get("sasl.oauthbearer.config", ""))
        return SaslLogin(mechanism, {"sasl_oauth_token_provider": _Token(settings["oauth_cb"], config)})
    user, password = settings.get("sasl.username"), settings.get("sasl.password")
    is_named = isinstance(user, str) and isinstance(password, str)
    if mechanism not in _BY_PASSWORD or not is_named or {",", "=", "\0"} & {*str(user)}:
        return None
    known = {"sasl_mechanism": mechanism, "sasl_plain_username": user, "sasl_plain_password": password}
    return SaslLogin(mechanism, known)


def mechanism_of(settings: Mapping[str, Any]) -> str:
    """The mechanism that librdkafka's settings name, by either of its names; Kerberos if they name none."""
    return str(settings.get("sasl.mechanism", settings.get("sasl.mechanisms", "GSSAPI"))).upper()


def _mechanism(name: str, config: Mapping[str, Any]) -> Any:
    """One of kafka-python's mechanisms, for one login."""
    # Here and not above: see `for_kafka_python`.
    from kafka.net.sasl import get_sasl_mechanism

    return get_sasl_mechanism(name)(**config)


class _Token:
    """What the user's `oauth_cb` returns: a token, when it ends, and maybe a principal and extensions."""

    def __init__(self, oauth_cb: Callable[[str], Any], config: str) -> None:
        self._oauth_cb = oauth_cb
        self._config = config
        self._extensions: Mapping[str, str] = {}

    def token(self) -> str:
        token, _, *rest = self._oauth_cb(self._config)
        self._extensions = rest[1] if len(rest) > 1 else {}
        return str(token)

    def extensions(self) -> Mapping[str, str]:
        return self._extensions


class _Answer:
    """Reads the answer to one of the two requests: they are older than compact lengths."""

    def __init__(self, frame: memoryview) -> None:
        self._frame = frame
        self._at = 4  # behind the correlation id

    def int16(self) -> int:
        return int(self._take(">h"))

    def int64(self) -> int:
        return int(self._take(">q"))

    def text(self) -> str:
        return self._bytes(int(self._take(">h"))).decode(errors="replace")

    def texts(self) -> list[str]:
        return [self.text() for _ in range(int(self._take(">i")))]

    def raw(self) -> bytes:
        return self._bytes(int(self._take(">i")))

    def _take(self, form: str) -> Any:
        try:
            (found,) = struct.unpack_from(form, self._frame, self._at)
        except struct.error as error:
            raise ProtocolError(f"the answer to a login is cut off: {error}") from error
        self._at += struct.calcsize(form)
        return found

    def _bytes(self, count: int) -> bytes:
        start, self._at = self._at, self._at + max(0, count)
        if self._at > len(self._frame):
            raise ProtocolError("the answer to a login is cut off")
        return bytes(self._frame[start : self._at])


def _text(text: str) -> bytes:
    raw = text.encode()
    return struct.pack(">h", len(raw)) + raw
