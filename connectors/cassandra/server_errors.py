"""What an error of Cassandra or of its driver means for whoever writes. Pure."""

from __future__ import annotations

import cassandra
from cassandra import cluster, connection, pool, protocol

from onceflow.runtime.errors import Fatal, Indeterminate, OnceflowError, Retryable

_NO_RIGHT = (cassandra.AuthenticationFailed, cassandra.Unauthorized, protocol.BadCredentials)
_NOT_DONE = (
    cassandra.Unavailable,
    cassandra.UnresolvableContactPoints,
    protocol.OverloadedErrorMessage,
    protocol.IsBootstrappingErrorMessage,
    pool.NoConnectionsAvailable,
    connection.ConnectionBusy,
    ConnectionRefusedError,
)
_UNKNOWN = (
    cassandra.Timeout,
    cassandra.OperationTimedOut,
    cassandra.CoordinationFailure,
    connection.ConnectionException,
    protocol.ServerError,
    protocol.TruncateError,
    OSError,
)
_NO_TLS = ("CERTIFICATE_VERIFY_FAILED", "WRONG_VERSION_NUMBER")
"""In the text of an error of a connection whose server is not trusted, or speaks no TLS: the driver makes an
OSError of it."""
_GONE = ("unconfigured table", "table", "keyspace", "undefined column", "unknown identifier")
"""What begins, in small letters, the reason of a statement that no row is to blame for. A server says so of a
table that another has just made, too; one that is really gone is told by the next claim, which looks."""


def meaning(error: BaseException, doing: str) -> OnceflowError:
    """What to raise for an error of a call."""
    said = f"{doing}: {reason_of(error)}"
    if isinstance(error, OnceflowError):
        return error
    if isinstance(error, cluster.NoHostAvailable):
        return _of_hosts(error, doing)
    if isinstance(error, _NO_RIGHT):
        return Fatal(f"{said}: correct the user or the password, or give it the right")
    if isinstance(error, OSError) and any(word in said for word in _NO_TLS):
        return Fatal(f"{said}: correct tls, ca_certs or check_hostname, or the servers' certificates")
    if isinstance(error, _NOT_DONE) or _is_gone(error):
        return Retryable(said)
    if isinstance(error, _UNKNOWN):
        return Indeterminate(said)
    return Fatal(said)


def is_rows_fault(error: BaseException) -> bool:
    """Whether the server refuses the values of a statement, and would take others."""
    return isinstance(error, cassandra.InvalidRequest) and not _is_gone(error)


def reason_of(error: BaseException) -> str:
    """The first line of what was said, without the driver's code before it."""
    text = (str(error).strip().splitlines() or [""])[0]
    text = text.partition('message="')[2].rstrip('"') or text
    return text.rstrip(".") or type(error).__name__


def _is_gone(error: BaseException) -> bool:
    """Whether a server does not know, or not yet, what a statement names."""
    return isinstance(error, cassandra.InvalidRequest) and reason_of(error).lower().startswith(_GONE)


def _of_hosts(error: cluster.NoHostAvailable, doing: str) -> OnceflowError:
    """No server has done it, and each has said why. One that has refused the user is as good as all."""
    found = error.errors.values() if isinstance(error.errors, dict) else [error.errors]
    meanings = [meaning(each, doing) for each in found if isinstance(each, BaseException)]
    for kind in (Fatal, Indeterminate):
        for said in meanings:
            if isinstance(said, kind):
                return said
    return meanings[0] if meanings else Retryable(f"{doing}: no server answers")
