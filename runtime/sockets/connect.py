"""A connection to a Listener of the same run."""

from __future__ import annotations

import socket
from typing import Any

from onceflow.runtime.sockets.credentials import Credentials, tls_context
from onceflow.runtime.sockets.handshake import call
from onceflow.runtime.sockets.tls_socket import Connected, TlsSocket


def connect(
    address: tuple[str, int], credentials: Credentials, greeting: dict[str, Any], timeout_s: float
) -> Connected:
    """Open it, and let each side prove to the other that it belongs to the run. Waits `timeout_s` at most
    for each answer. Raises OSError, HandshakeError; then nothing is left open."""
    opened: Connected = socket.create_connection(address, timeout=timeout_s)
    try:
        if credentials.tls is not None:
            assert isinstance(opened, socket.socket)
            opened = TlsSocket(tls_context(credentials.tls, is_server=False).wrap_socket(opened))
        call(opened, credentials.secret, greeting)
    except BaseException:
        opened.close()
        raise
    return opened
