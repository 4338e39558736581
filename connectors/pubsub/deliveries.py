"""PubSubDeliveries: what one subscription of Pub/Sub delivers, held until it is acknowledged."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import grpc

from onceflow.connectors.acknowledged.threaded_deliveries import ThreadedDeliveries
from onceflow.connectors.pubsub.messages import message_of
from onceflow.connectors.pubsub.subscription_calls import PubSubPlace, SubscriptionCalls, meaning, opened
from onceflow.runtime.contracts import ReaderContext
from onceflow.runtime.errors import OnceflowError, Retryable

_SIGN_OF_LIFE_S = 30.0
_STEADY_MS = 10_000
"""A stream that has lived for so long is opened again: Google ends each after some minutes."""
_AGAIN_S = 0.5
_LOOK_COUNT = 1_000


@dataclass(frozen=True, slots=True)
class Terms:
    """How messages of a subscription are held."""

    prefetch: int
    """How many may be unacknowledged at once."""
    ack_deadline_s: int
    """For how long the service waits for a sign that one is held."""
    quiet_ms: int | None
    """After so long without a message it is looked whether there is none. None: nobody asks."""


class PubSubDeliveries(ThreadedDeliveries):
    """Deliveries of one subscription. One thread takes what comes, on a stream. Another one, the keeper,
    acknowledges, and extends the deadline of all that is held, for as long as this is open."""

    def __init__(self, place: PubSubPlace, subscription: str, terms: Terms, context: ReaderContext) -> None:
        super().__init__(subscription, context)
        self._place, self._subscription, self._terms = place, subscription, terms
        self._began_ms = context.clock.now_ms()
        self._client_id = str(uuid.uuid4())
        self._tag = 0
        self._held: dict[int, str] = {}
        """What acknowledges each message, by its tag, in order. Under `_changed`, as the next four."""
        self._told: list[str] = []
        """What is to be acknowledged."""
        self._told_ms = 0.0
        """When the first of them was."""
        self._came_ms = context.clock.monotonic_ms()
        self._stream: Any = None
        self.start()

    @property
    def alive_ms(self) -> float:
        """See Deliveries: what was to be acknowledged before this is."""
        with self._changed:
            return self._told_ms if self._told else self._clock.monotonic_ms()

    def acknowledge(self, last_tag: int) -> None:
        """See Deliveries."""
        with self._changed:
            told = []
            for tag, ack_id in self._held.items():
                if tag > last_tag:
                    break
                told.append((tag, ack_id))
            for tag, _ in told:
                del self._held[tag]
            if not self._told:
                self._told_ms = self._clock.monotonic_ms()
            self._told += [ack_id for _, ack_id in told]
            self._changed.notify_all()

    def _end(self) -> None:
        super()._end()
        if self._stream is not None:
            self._stream.cancel()

    # --- The thread of the stream ---

    def _serve(self) -> None:
        with opened(self._place, self._subscription) as calls:
            keeper = threading.Thread(
                target=self._keep, args=(calls,), name="onceflow-pubsub-keeper", daemon=True
            )
            keeper.start()
            try:
                self._receive(calls)
            finally:
                self._end()
                keeper.join()
                self._acknowledge(calls)
                self._extend(calls, 0)  # who comes next has it at once

    def _receive(self, calls: SubscriptionCalls) -> None:
        terms = self._terms
        while not self._closed.is_set():
            opened_ms, is_over = self._clock.monotonic_ms(), threading.Event()
            self._stream = stream = calls.stream(
                terms.ack_deadline_s, terms.prefetch, self._client_id, partial(self._wait, is_over)
            )
            if self._closed.is_set():
                stream.cancel()
            try:
                for response in stream:
                    self._came(type(response).pb(response).received_messages)
                failure: OnceflowError = Retryable(f"{self._subscription}: Pub/Sub has ended the stream")
            except grpc.RpcError as error:
                failure = meaning(error, self._subscription)
            finally:
                is_over.set()
            is_steady = self._clock.monotonic_ms() - opened_ms >= _STEADY_MS
            if not self._closed.is_set() and not (is_steady and isinstance(failure, Retryable)):
                raise failure

    def _wait(self, is_over: threading.Event) -> bool:
        """Wait until it is time for a sign of life; True: the stream is over."""
        return self._closed.wait(_SIGN_OF_LIFE_S) or is_over.is_set()

    def _came(self, received: Iterable[Any]) -> None:
        with self._changed:
            for each in received:
                self._tag += 1
                self._held[self._tag] = each.ack_id
                self._messages.append(message_of(each, self._tag, self._began_ms))
            self._came_ms = self._clock.monotonic_ms()
            self._is_at_end = False
        self._wake()

    # --- The keeper ---

    def _keep(self, calls: SubscriptionCalls) -> None:
        try:
            extend_s = self._terms.ack_deadline_s / 3
            extended_ms = self._clock.monotonic_ms()
            while not self._closed.is_set():
                with self._changed:
                    if not self._told:
                        self._changed.wait(min(_AGAIN_S, extend_s / 2))
                self._acknowledge(calls)
                if self._clock.monotonic_ms() - extended_ms >= extend_s * 1000:
                    extended_ms = self._clock.monotonic_ms()
                    self._extend(calls, self._terms.ack_deadline_s)
                self._look_for_end(calls)
        except OnceflowError as error:
            self._error = self._error or error
            self._end()

    def _acknowledge(self, calls: SubscriptionCalls) -> None:
        """Acknowledge what is to be; what fails for now is tried again. What the service no longer takes, it
        delivers again, and then it is known."""
        with self._changed:
            told = [*self._told]
        if not told:
            return
        try:
            calls.acknowledge(told)
        except grpc.RpcError as error:
            if isinstance(meaning(error, self._subscription), Retryable):
                self._closed.wait(_AGAIN_S)
                return
            if error.code() not in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.FAILED_PRECONDITION):
                raise meaning(error, self._subscription) from error
        with self._changed:
            del self._told[: len(told)]
            self._told_ms = self._clock.monotonic_ms()

    def _extend(self, calls: SubscriptionCalls, deadline_s: int) -> None:
        with self._changed:
            held = [*self._held.values()]
        with suppress(grpc.RpcError):  # one whose deadline passes comes again, and is known
            calls.extend(held, deadline_s)

    def _look_for_end(self, calls: SubscriptionCalls) -> None:
        """See whether there is nothing to deliver, where nothing has come for a while."""
        quiet_ms = self._terms.quiet_ms
        if quiet_ms is None or self._is_at_end or self._clock.monotonic_ms() - self._came_ms < quiet_ms:
            return
        try:
            found = calls.pull_what_is_there(_LOOK_COUNT)
        except grpc.RpcError as error:
            if isinstance(failure := meaning(error, self._subscription), Retryable):
                return
            raise failure from error
        if received := type(found).pb(found).received_messages:
            self._came(received)
            return
        self._is_at_end = self._clock.monotonic_ms() - self._came_ms >= quiet_ms
        self._wake()
