"""TLS of a run: each side shows the one certificate, and takes no other."""

from __future__ import annotations

import datetime
import os
import pickle
import socket
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from cryptography import x509

from onceflow.runtime.sockets.certificate import new_identity
from onceflow.runtime.sockets.credentials import Credentials, TlsIdentity, tls_context

OURS, THEIRS = new_identity(), new_identity()
DEADLINE_S = 80


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    client, server = socket.socketpair()
    for end in (client, server):
        end.settimeout(DEADLINE_S)
    yield client, server
    client.close()
    server.close()


def outcome(ends: tuple[socket.socket, socket.socket], client: ssl.SSLContext) -> list[str]:
    """What each side says once the client has asked and the server, of our run, has answered: a version of
    TLS, or an error."""
    serving = tls_context(OURS, is_server=True)

    def ask() -> str:
        with client.wrap_socket(ends[0]) as asking:
            asking.recv(1)
            return str(asking.version())

    def serve() -> str:
        with serving.wrap_socket(ends[1], server_side=True) as answering:
            answering.sendall(b"x")
            return str(answering.version())

    def run(side: object) -> str:
        try:
            return ask() if side == "client" else serve()
        except (ssl.SSLError, OSError) as error:
            return str(error)

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(run, ("client", "server")))


def test_both_sides_of_a_run_come_together(ends: tuple[socket.socket, socket.socket]) -> None:
    assert outcome(ends, tls_context(OURS, is_server=False)) == ["TLSv1.3", "TLSv1.3"]


def strangers_own() -> ssl.SSLContext:
    """Trusts everybody, and shows a certificate of the same name."""
    context = tls_context.__wrapped__(THEIRS, is_server=False)
    context.verify_mode = ssl.CERT_NONE
    return context


def without() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def of_before() -> ssl.SSLContext:
    context = tls_context.__wrapped__(OURS, is_server=False)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    return context


@pytest.mark.parametrize("client", [strangers_own, without, of_before])
def test_a_stranger_is_not_let_in(
    ends: tuple[socket.socket, socket.socket], client: type[ssl.SSLContext]
) -> None:
    """He has a certificate of his own, or none, or speaks an older TLS."""
    _, server = outcome(ends, client())
    assert "TLSv1" not in server
    assert any(text in server.lower() for text in ("certificate", "unsupported protocol"))


def test_a_server_of_a_strangers_is_not_believed(ends: tuple[socket.socket, socket.socket]) -> None:
    client, _ = outcome(ends, tls_context(THEIRS, is_server=False))
    assert "CERTIFICATE_VERIFY_FAILED" in client


def test_the_certificate_is_good_for_as_long_as_a_run_and_signs_no_other() -> None:
    certificate = x509.load_pem_x509_certificate(OURS.certificate.encode())
    now = datetime.datetime.now(datetime.UTC)
    assert certificate.not_valid_before_utc < now < certificate.not_valid_after_utc.replace(year=3000)
    constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
    assert not constraints.ca
    assert OURS.key != THEIRS.key


def test_no_secret_is_shown_and_credentials_travel() -> None:
    credentials = Credentials(b"s" * 32, OURS)
    assert pickle.loads(pickle.dumps(credentials)) == credentials
    assert "PRIVATE" not in repr(credentials)
    assert "sss" not in repr(credentials)


def test_making_a_context_leaves_no_descriptor_open() -> None:
    before = os.listdir("/dev/fd")
    tls_context.__wrapped__(OURS, is_server=True)
    with pytest.raises(ssl.SSLError):
        tls_context.__wrapped__(TlsIdentity("no certificate", "no key"), is_server=True)
    assert os.listdir("/dev/fd") == before
