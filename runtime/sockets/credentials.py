"""Credentials: what proves that a process belongs to one run of a job.

The driver makes them when a run begins. The slots get them with the code that Spark ships, and the commands
that work on a running job read them from running.json. They are good for that run only.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache


@dataclass(frozen=True, slots=True)
class TlsIdentity:
    """A key and its self-signed certificate, as PEM. Every process of a run has it, and trusts no other."""

    certificate: str
    key: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Credentials:
    """The secret that opens a run's connections, and what encrypts them."""

    secret: bytes = field(repr=False)
    tls: TlsIdentity | None = None
    """None: connections are authenticated, and not encrypted."""


@lru_cache(maxsize=4)  # a slot of a wide job opens hundreds of connections
def tls_context(identity: TlsIdentity, is_server: bool) -> ssl.SSLContext:
    """TLS 1.3 in which both sides must show exactly this certificate. Raises ssl.SSLError for a damaged one.

    No names are compared: the certificate stands for the run, wherever its processes are.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if is_server else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=identity.certificate)
    with _readable(identity.certificate) as certificate, _readable(identity.key) as key:
        context.load_cert_chain(certificate, key)
    if is_server:
        context.num_tickets = 0  # nobody resumes, and a peer that only sends would never read them
    return context


@contextmanager
def _readable(text: str) -> Iterator[str]:
    """The path of a text that lies on no disk: `load_cert_chain` takes paths only, and a key in a file would
    be left there by a crash."""
    reading, writing = os.pipe()
    try:
        try:
            os.write(writing, text.encode())  # a pipe holds more than a key and its certificate
        finally:
            os.close(writing)
        yield f"/dev/fd/{reading}"
    finally:
        os.close(reading)
