"""Proof of a run's secret at the start of a connection, without sending the secret.

Both sides of every connection of a job (control and exchange) know a random secret. The listener sends a
nonce; the caller answers with its own nonce and an HMAC over both and what it wants; the listener proves
itself in return. A stranger on the network learns nothing that it could replay: the other side's nonce is
new each time. Frames here are length-prefixed JSON or raw bytes, bounded to 64 KiB.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import struct
from typing import Any

from onceflow.runtime.errors import OnceflowError
from onceflow.runtime.sockets.tls_socket import Connected

_LENGTH = struct.Struct("<I")
_NONCE_BYTES = 32
_FRAME_BYTES_MAX = 1 << 16


class HandshakeError(OnceflowError):
    """The peer does not know the run's secret, or does not speak this protocol. There are few different
    messages, whatever a peer sends."""


def call(connection: Connected, secret: bytes, greeting: dict[str, Any]) -> None:
    """The caller's side: say who we are and prove it; check that the listener can prove it too.

    The socket blocks (with a timeout) during the handshake. Raises HandshakeError, OSError.
    """
    their_nonce = _read(connection)
    if len(their_nonce) != _NONCE_BYTES:
        raise HandshakeError("the peer speaks another protocol")
    own_nonce = secrets.token_bytes(_NONCE_BYTES)
    body = json.dumps(greeting).encode()
    _write(connection, own_nonce + _proof(secret, b"caller", their_nonce, own_nonce, body) + body)
    answer = _read(connection)
    if not hmac.compare_digest(answer, _proof(secret, b"listener", their_nonce, own_nonce, body)):
        raise HandshakeError("the peer could not prove that it belongs to this job")


def answer(connection: Connected, secret: bytes) -> dict[str, Any]:
    """The listener's side: the caller's greeting, once it is proven. Raises HandshakeError, OSError."""
    own_nonce = secrets.token_bytes(_NONCE_BYTES)
    _write(connection, own_nonce)
    frame = _read(connection)
    digest_end = _NONCE_BYTES + hashlib.sha256().digest_size
    their_nonce, proof, body = frame[:_NONCE_BYTES], frame[_NONCE_BYTES:digest_end], frame[digest_end:]
    if not hmac.compare_digest(proof, _proof(secret, b"caller", own_nonce, their_nonce, body)):
        raise HandshakeError("the peer could not prove that it belongs to this job")
    greeting = json.loads(body)
    if not isinstance(greeting, dict):
        raise HandshakeError("the peer's greeting is not a JSON object")
    _write(connection, _proof(secret, b"listener", own_nonce, their_nonce, body))
    return greeting


def _proof(secret: bytes, role: bytes, listener_nonce: bytes, caller_nonce: bytes, body: bytes) -> bytes:
    return hmac.digest(secret, b"|".join((role, listener_nonce, caller_nonce, body)), "sha256")


def _write(connection: Connected, frame: bytes) -> None:
    connection.sendall(_LENGTH.pack(len(frame)) + frame)


def _read(connection: Connected) -> bytes:
    (length,) = _LENGTH.unpack(_read_exactly(connection, _LENGTH.size))
    if length > _FRAME_BYTES_MAX:
        raise HandshakeError("the peer speaks another protocol")
    return _read_exactly(connection, length)


def _read_exactly(connection: Connected, length: int) -> bytes:
    parts = bytearray()
    while len(parts) < length:
        part = connection.recv(length - len(parts))
        if not part:
            raise HandshakeError("the peer closed the connection during the handshake")
        parts += part
    return bytes(parts)
