"""How to connect to RabbitMQ, and what its errors mean."""

from __future__ import annotations

import os
import string
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pika
from pika.exceptions import (
    AMQPConnectionError,
    AMQPError,
    ChannelClosedByBroker,
    ConnectionClosedByBroker,
    ProbableAccessDeniedError,
    ProbableAuthenticationError,
)

from onceflow.runtime.errors import Fatal, OnceflowError, Retryable

HEARTBEAT_S = 10
"""A consumer that stands still for twice as long loses its messages to the next one."""
NOT_FOUND = 404
_IN_USE, _PRECONDITION = 403, 406
_GUESSED = (ProbableAuthenticationError, ProbableAccessDeniedError)
"""pika raises these for any connection that ends while it is being opened, also when the server was killed
just then. What the server itself said, if it said anything, is in the text, with its code in brackets."""
_REFUSED = (403, 530)
"""The codes for a wrong password and for a virtual host that is not there, or not open to the user."""
_NOT_YET = ("inaccessible", "does not have a replica")
"""What a node says of a durable queue or a stream while it is starting."""


def parameters(url: str) -> pika.URLParameters:
    """How to connect; `${NAME}` in the address is a variable of the environment. Raises Fatal for one that is
    not there."""
    try:
        whole = string.Template(url).substitute(os.environ)
    except KeyError as error:
        raise Fatal(
            f"the address of RabbitMQ names the environment variable {error.args[0]!r}, which is not set "
            "where the slots run: set it there"
        ) from error
    made = pika.URLParameters(whole)
    made.heartbeat = HEARTBEAT_S
    made.blocked_connection_timeout = 60
    return made


@contextmanager
def connected(url: str, where: str, option: str) -> Iterator[Any]:
    """A connection for as long as the block takes; RabbitMQ's errors come out of it as what they mean."""
    try:
        connection: Any = pika.BlockingConnection(parameters(url))
        try:
            yield connection
        finally:
            with suppress(AMQPError):
                connection.close()
    except AMQPError as error:
        raise meaning(error, where, option) from error
    except OSError as error:
        raise Retryable(f"{where}: {error}") from error


def meaning(error: AMQPError, where: str, option: str) -> OnceflowError:
    """An error of RabbitMQ's as what a reader does about it. `where`: "queue 'q'"; `option`: that of the
    source which names it."""
    text = str(error) or type(error).__name__
    if isinstance(error, ChannelClosedByBroker):
        code = error.reply_code
        if code == _IN_USE and "exclusive" in error.reply_text:
            return Retryable(f"{where} has another consumer, and one may read it at a time")
        if any(sign in error.reply_text for sign in _NOT_YET):
            return Retryable(f"{where}: the node that has it is not up: {error.reply_text}")
        if code == _PRECONDITION and "x-stream-offset" in error.reply_text:
            return Fatal(f"{where} is a queue and no stream: read it with RabbitQueueSource")
        if code == NOT_FOUND:
            return Fatal(f"{where} is not there: declare it, or give another name in {option}=")
        if code == _PRECONDITION and "timeout" in error.reply_text:
            return Fatal(
                f"{where}: RabbitMQ gave up waiting for acknowledgements ({error.reply_text}): make the "
                "checkpoint interval shorter, or raise consumer_timeout"
            )
        return Fatal(f"{where}: RabbitMQ refuses it: {error.reply_text}")
    if _is_refused(error, text):
        return Fatal(
            f"{where}: RabbitMQ does not let it in ({text}): look at the url, the user and its rights"
        )
    if isinstance(error, AMQPConnectionError):
        return Retryable(f"{where}: no connection to RabbitMQ: {text}")
    return Retryable(f"{where}: {text}")


def _is_refused(error: AMQPError, text: str) -> bool:
    """Whether the server has said that this client may not come in."""
    if isinstance(error, ConnectionClosedByBroker):
        return error.reply_code in _REFUSED
    return isinstance(error, _GUESSED) and any(f"({code})" in text for code in _REFUSED)
