"""Kafka's errors, as the errors of runtime/errors.py with a sentence that says what to do."""

from __future__ import annotations

from confluent_kafka import KafkaError

from onceflow.runtime.errors import Fatal, Fenced, Indeterminate, OnceflowError, Retryable

_FENCED = {KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH}
_DENIED = {
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "WRITE",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "READ",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "READ",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "IDEMPOTENT_WRITE",
}
"""The operation that is missing, where the action does not tell more."""
_NEVER = {
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.RECORD_LIST_TOO_LARGE,
    KafkaError.INVALID_RECORD,
    KafkaError.POLICY_VIOLATION,
}
"""Asked again, the broker would say the same."""
_CUT = ("Disconnected", "unexpected eof", "reset by peer", "Broken pipe")
"""A broker that dies within a handshake refuses nobody."""
_REFUSED_CONNECTION = (
    "SASL authentication error",
    "SaslAuthenticateRequest failed",
    "Authentication failed",
    "certificate verify failed",
    "SSL handshake failed",
    "ssl.ca.location",
)


def failure(
    error: KafkaError, action: str, resource: str, *, may_have_happened: bool = False
) -> OnceflowError:
    """The error to raise when `action` ("commit the transaction") on `resource` ("topic totals") failed."""
    code = error.code()
    said = f"could not {action} ({resource}): {error.name()}: {error.str()}"
    if code in _DENIED:
        is_output = code == KafkaError.TOPIC_AUTHORIZATION_FAILED and action == "write"
        return denied(action, resource, "WRITE" if is_output else _DENIED[code], error.name())
    if code in _FENCED:
        return Fenced(
            f"{said}: a newer producer with the same transactional id exists, or the transaction timed out"
        )
    if code == KafkaError.INVALID_TRANSACTION_TIMEOUT:
        return Fatal(
            f"{said}: transaction_timeout is above the broker's transaction.max.timeout.ms "
            "(900000 ms unless it was changed): make it shorter"
        )
    if code in _NEVER:
        return Fatal(f"{said}: the broker will never take it")
    return Indeterminate(said) if may_have_happened else Retryable(said)


def denied(action: str, resource: str, operations: str, name: str) -> Fatal:
    """A missing ACL: names the operation and the resource."""
    return Fatal(
        f"not allowed to {action}: the user lacks {operations} on {resource} ({name}): "
        "have an ACL added, and start the job again"
    )


def connection_failure(reason: str, servers: str) -> OnceflowError | None:
    """Fatal if the broker at the other end refuses who we are, or we refuse it; None for anything else.

    librdkafka itself only times out: the reason comes by its error callback.
    """
    is_cut = any(sign in reason for sign in _CUT)
    if is_cut or not any(sign in reason for sign in _REFUSED_CONNECTION):
        return None
    return Fatal(
        f"the broker at {servers} and this client refuse each other: {reason}: check sasl.mechanism, "
        "sasl.username, sasl.password and ssl.ca.location in librdkafka={...}"
    )
