"""What errors of Cassandra mean for whoever writes."""

from __future__ import annotations

import cassandra
import pytest
from cassandra import cluster, connection, protocol

from onceflow.connectors.cassandra.server_errors import is_rows_fault, meaning, reason_of
from onceflow.runtime.errors import Fatal, Indeterminate, OnceflowError, Retryable

REFUSED = ConnectionRefusedError(
    111, "Tried connecting to [('127.0.0.1', 9042)]. Last error: Connection refused"
)
NO_USER = cassandra.AuthenticationFailed("Failed to authenticate to 127.0.0.1: Bad credentials")
NOT_TRUSTED = PermissionError(
    1,
    "Tried connecting to []. Last error: [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed",
)
BUSY = protocol.OverloadedErrorMessage(0x1001, "too many", {})


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (cassandra.Unavailable("Cannot achieve consistency level QUORUM"), Retryable),
        (BUSY, Retryable),
        (cassandra.UnresolvableContactPoints({}), Retryable),
        (connection.ConnectionBusy("all streams are in use"), Retryable),
        (cassandra.WriteTimeout("no answer", write_type=0), Indeterminate),
        (cassandra.WriteFailure("failed", write_type=0), Indeterminate),
        (cassandra.ReadFailure("failed"), Indeterminate),
        (cassandra.OperationTimedOut({}), Indeterminate),
        (connection.ConnectionShutdown("closed"), Indeterminate),
        (ConnectionResetError(104, "reset"), Indeterminate),
        (NO_USER, Fatal),
        (NOT_TRUSTED, Fatal),
        (OSError(1, "Last error: [SSL: WRONG_VERSION_NUMBER] wrong version number"), Fatal),
        (OSError(8, "Last error: [SSL: UNEXPECTED_EOF_WHILE_READING] EOF"), Indeterminate),
        (cassandra.Unauthorized("User u has no MODIFY permission"), Fatal),
        (cassandra.InvalidRequest("unconfigured table orders"), Retryable),
        (cassandra.InvalidRequest("table onceflow_ledger does not exist"), Retryable),
        (cassandra.InvalidRequest("Key may not be empty"), Fatal),
        (cluster.NoHostAvailable("none", {"a": REFUSED, "b": REFUSED}), Retryable),
        (cluster.NoHostAvailable("none", {"a": REFUSED, "b": NO_USER}), Fatal),
        (
            cluster.NoHostAvailable("none", {"a": REFUSED, "b": connection.ConnectionShutdown("c")}),
            Indeterminate,
        ),
        (cluster.NoHostAvailable("none", {}), Retryable),
        (Retryable("as it is"), Retryable),
    ],
)
def test_what_an_error_means(error: Exception, kind: type[OnceflowError]) -> None:
    assert type(meaning(error, "sink 'out': writing rows")) is kind


def test_a_message_is_one_sentence_without_the_driver_s_code() -> None:
    error = cassandra.InvalidRequest(
        'Error from server: code=2200 [Invalid query] message="Key may not be empty."'
    )
    assert reason_of(error) == "Key may not be empty"
    assert str(meaning(NO_USER, "connecting")) == (
        "connecting: Failed to authenticate to 127.0.0.1: Bad credentials: correct the user or the password, "
        "or give it the right"
    )


@pytest.mark.parametrize(
    ("said", "is_fault"),
    [
        ("Key may not be empty", True),
        ("Key length of 65536 is longer than maximum of 65535", True),
        ("unconfigured table orders", False),
        ("Keyspace shop does not exist", False),
        ("Undefined column name v in table shop.orders", False),
    ],
)
def test_which_refusals_are_a_row_s_fault(said: str, is_fault: bool) -> None:
    assert is_rows_fault(cassandra.InvalidRequest(said)) is is_fault
    assert not is_rows_fault(cassandra.Unauthorized(said))
