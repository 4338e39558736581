"""SubscriptionCalls: the calls of Pub/Sub's API about one subscription, and what its errors mean."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any

import grpc
from google.api_core.gapic_v1.routing_header import to_grpc_metadata
from google.auth.exceptions import GoogleAuthError
from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcTransport
from google.pubsub_v1.types import (
    AcknowledgeRequest,
    ModifyAckDeadlineRequest,
    PullRequest,
    StreamingPullRequest,
)

from onceflow.runtime.errors import Fatal, OnceflowError, Retryable

_GOOGLE = "pubsub.googleapis.com"
_EMULATOR = "PUBSUB_EMULATOR_HOST"
_IDS_MAX = 1_000
"""How many one request may have, which has to stay below 512 KB."""
_ANSWER_S = 20.0
_BYTES_MAX = 256 * 1024 * 1024
_Code = grpc.StatusCode
_PASSING = frozenset(
    {
        _Code.UNAVAILABLE,
        _Code.INTERNAL,
        _Code.ABORTED,
        _Code.CANCELLED,
        _Code.DEADLINE_EXCEEDED,
        _Code.RESOURCE_EXHAUSTED,
        _Code.UNKNOWN,
    }
)


@dataclass(frozen=True, slots=True)
class PubSubPlace:
    """Where Pub/Sub is."""

    emulator_host: str | None
    """None: what the environment says, as Google's clients do."""
    endpoint: str | None
    """None: Google's own."""

    def open(self) -> SubscriberGrpcTransport:
        """A channel to it. Raises Fatal without credentials."""
        emulator = self.emulator_host or os.environ.get(_EMULATOR)
        if emulator:
            unlimited = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
            return SubscriberGrpcTransport(channel=grpc.insecure_channel(emulator, unlimited))
        try:
            return SubscriberGrpcTransport(host=self.endpoint or _GOOGLE)
        except GoogleAuthError as error:
            raise Fatal(
                f"Pub/Sub: Google's client finds no credentials where the slots run ({error}): set "
                "GOOGLE_APPLICATION_CREDENTIALS there, or give the machine a service account"
            ) from error


class SubscriptionCalls:
    """The calls about one subscription. Any thread may make them."""

    def __init__(self, transport: SubscriberGrpcTransport, subscription: str) -> None:
        self._transport: Any = transport  # whose types know the request of a call, and not its options
        self._subscription = subscription
        self._metadata = (to_grpc_metadata({"subscription": subscription}),)

    def stream(
        self, deadline_s: int, outstanding: int, client_id: str, wait: Callable[[], bool]
    ) -> Any:  # grpc's types have an iterator and a call, and no call that is iterated over
        """What comes, in an iterator of responses that can be cancelled. `wait()` comes back when it is time
        for a sign of life, or with True when the stream is over."""

        def requests() -> Iterator[StreamingPullRequest]:
            yield StreamingPullRequest(
                subscription=self._subscription,
                stream_ack_deadline_seconds=deadline_s,
                max_outstanding_messages=outstanding,
                max_outstanding_bytes=_BYTES_MAX,
                client_id=client_id,
            )
            while not wait():
                yield StreamingPullRequest()

        return self._transport.streaming_pull(requests(), metadata=self._metadata)

    def pull_what_is_there(self, count: int) -> Any:
        """What could be delivered at once, without waiting for it."""
        asked = PullRequest(subscription=self._subscription, max_messages=count, return_immediately=True)
        return self._transport.pull(asked, timeout=_ANSWER_S, metadata=self._metadata)

    def acknowledge(self, ack_ids: Sequence[str]) -> None:
        """Acknowledge them. Raises grpc.RpcError."""
        for some in _pieces(ack_ids):
            asked = AcknowledgeRequest(subscription=self._subscription, ack_ids=some)
            self._transport.acknowledge(asked, timeout=_ANSWER_S, metadata=self._metadata)

    def extend(self, ack_ids: Sequence[str], deadline_s: int) -> None:
        """Hold them for so long from now on; 0: give them back. Raises grpc.RpcError."""
        for some in _pieces(ack_ids):
            asked = ModifyAckDeadlineRequest(
                subscription=self._subscription, ack_ids=some, ack_deadline_seconds=deadline_s
            )
            self._transport.modify_ack_deadline(asked, timeout=_ANSWER_S, metadata=self._metadata)


@contextmanager
def opened(place: PubSubPlace, subscription: str) -> Iterator[SubscriptionCalls]:
    """The calls, for as long as the block takes; what the API says comes out of it as what it means."""
    transport = place.open()
    try:
        yield SubscriptionCalls(transport, subscription)
    except grpc.RpcError as error:
        raise meaning(error, subscription) from error
    finally:
        transport.close()


def meaning(error: grpc.RpcError, subscription: str) -> OnceflowError:
    """An error of the API as what a reader does about it."""
    code, text = error.code(), error.details()
    if code is _Code.NOT_FOUND:
        return Fatal(f"{subscription} is not there: create it, or give another name in subscriptions=")
    if code in (_Code.PERMISSION_DENIED, _Code.UNAUTHENTICATED):
        return Fatal(
            f"{subscription}: Pub/Sub does not let it in ({text}): look at the credentials, and give their "
            "account the right pubsub.subscriptions.consume"
        )
    if code in _PASSING:
        return Retryable(f"{subscription}: {code.name}: {text}")
    return Fatal(f"{subscription}: Pub/Sub refuses it: {text}")


def _pieces(ack_ids: Iterable[str]) -> Iterator[list[str]]:
    left = iter(ack_ids)
    while some := list(islice(left, _IDS_MAX)):
        yield some
