"""What RabbitMQ's errors mean: which are worth waiting for. pika's own classes; texts as a server was seen to
send them."""

from __future__ import annotations

import pytest
from pika.exceptions import (
    AMQPError,
    ChannelClosedByBroker,
    ConnectionClosedByBroker,
    IncompatibleProtocolError,
    ProbableAccessDeniedError,
    ProbableAuthenticationError,
    StreamLostError,
)

from onceflow.connectors.rabbitmq.connections import meaning
from onceflow.runtime.errors import Fatal, Retryable

RESET = repr(StreamLostError("Stream connection lost: ConnectionResetError(104, 'Connection reset by peer')"))
WRONG_PASSWORD = repr(ConnectionClosedByBroker(403, "ACCESS_REFUSED - Login was refused using PLAIN"))
NO_VHOST = repr(ConnectionClosedByBroker(530, "NOT_ALLOWED - vhost none not found"))
SHUTDOWN = repr(ConnectionClosedByBroker(320, "CONNECTION_FORCED - broker forced connection closure"))
NO_REPLICA = "PRECONDITION_FAILED - queue 's' in vhost '/' does not have a replica on the local node"
IS_DOWN = "NOT_FOUND - home node 'n@localhost' of durable queue 'q' in vhost '/' is down or inaccessible"


@pytest.mark.parametrize(
    "error",
    [
        ProbableAuthenticationError(RESET),
        ProbableAccessDeniedError(RESET),
        ProbableAuthenticationError(SHUTDOWN),
        IncompatibleProtocolError(RESET),
        ConnectionClosedByBroker(320, "CONNECTION_FORCED - Node was put into maintenance mode"),
        ChannelClosedByBroker(406, NO_REPLICA),
        ChannelClosedByBroker(404, IS_DOWN),
        StreamLostError("Transport indicated EOF"),
    ],
    ids=str,
)
def test_a_server_that_goes_or_comes_is_waited_for(error: AMQPError) -> None:
    assert type(meaning(error, "queue 'q'", "queues")) is Retryable


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (ProbableAuthenticationError(WRONG_PASSWORD), "does not let it in"),
        (ProbableAccessDeniedError(NO_VHOST), "does not let it in"),
        (ConnectionClosedByBroker(403, "ACCESS_REFUSED"), "does not let it in"),
        (ChannelClosedByBroker(404, "NOT_FOUND - no queue 'q' in vhost '/'"), "is not there: declare it"),
        (ChannelClosedByBroker(406, "PRECONDITION_FAILED - unknown delivery tag"), "RabbitMQ refuses it"),
    ],
    ids=str,
)
def test_what_the_server_refuses_is_fatal(error: AMQPError, says: str) -> None:
    found = meaning(error, "queue 'q'", "queues")
    assert type(found) is Fatal
    assert says in str(found)
