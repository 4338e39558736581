"""ExplainedCalls: calls into a librdkafka producer, with a deadline, and what their failures mean."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException, Producer

from onceflow.connectors.kafka.librdkafka.deadline import CallsWithDeadline, OverdueError
from onceflow.connectors.kafka.produce.batch_limit import TOO_LARGE, BatchLimit, RefusedBatch
from onceflow.connectors.kafka.produce.route import Route
from onceflow.connectors.kafka.transactions.reasons import Reasons
from onceflow.runtime.errors import Indeterminate, OnceflowError, Retryable

Result = TypeVar("Result")

_GRACE_S = 3.0
"""How much longer than its own timeout a call of librdkafka may take before it counts as stuck."""


class ExplainedCalls:
    """The calls of one producer with their deadlines; an error says what it came of. Used by one thread at a
    time; `close` before the producer goes."""

    def __init__(
        self,
        producer: Producer,
        route: Route,
        reasons: Reasons,
        limit: BatchLimit,
        request_s: float,
        is_cut: Callable[[], bool],
        discarded: threading.Event,
    ) -> None:
        """`request_s`: how long each call may take by itself. `is_cut`: whether a connection broke since the
        producer was initialised. `discarded`: set once a call is overdue. Then the producer is never to be
        touched again, not even to be freed; the next one's init fences it."""
        self.route = route
        self._producer: Producer | None = producer
        self._reasons = reasons
        self._limit = limit
        self._request_s = request_s
        self._overdue_s = request_s + _GRACE_S
        self._is_cut = is_cut
        self._discarded = discarded
        self._calls = CallsWithDeadline("kafka-calls")

    def use(
        self, call: Callable[[], Result], action: str, resource: str, *, may_have_happened: bool = False
    ) -> Result:
        """`call()` with a deadline, which comes sooner once a connection broke, and later if brokers throttle
        us."""

        def bounded() -> Result:
            throttle = self._reasons.throttle
            return self._calls.call(
                call, self._overdue_s, f"kafka: {action}", self._is_cut, lambda: throttle.until_s
            )

        return self.explained(bounded, action, resource, may_have_happened=may_have_happened)

    def commit(self, commit: Callable[[float], None], resource: str) -> None:
        """Commit by `commit(timeout_s)`, which goes on where it was if it timed out: a coordinator whose last
        answer throttles us hears of the end only once that is over."""

        def until_heard() -> None:
            started_s = time.monotonic()
            while True:
                try:
                    commit(self._request_s)
                except KafkaException as e:
                    is_late = e.args[0].code() == KafkaError._TIMED_OUT
                    if not is_late or self._reasons.throttle.waited_s(started_s) > self._request_s:
                        raise
                else:
                    return

        self.use(until_heard, "commit", resource, may_have_happened=True)

    def explained(
        self, call: Callable[[], Result], action: str, resource: str, *, may_have_happened: bool = False
    ) -> Result:
        """`call()`, with its failure explained by what was first to fail."""
        try:
            return call()
        except OverdueError as e:
            self._discarded.set()
            kind = Indeterminate if may_have_happened else Retryable
            why = self._reasons.throttle.reason
            raise kind(f"can't {action} ({resource}): {e}{'; ' if why else ''}{why}") from None
        except (KafkaException, SystemError) as e:
            cause = e if isinstance(e, KafkaException) else self._fatal_error(e)
            error, topic = self.route.first_failure or (cause.args[0], "")
            if cause.args[0].code() in TOO_LARGE:  # whatever else failed because of it
                raise self.unwritten(cause.args[0], topic or resource.removeprefix("Topic ")) from e
            if topic and error.code() != KafkaError._PURGE_QUEUE and not cause.args[0].fatal():
                raise self.unwritten(error, topic) from e
            failed = self._reasons.failure(
                cause.args[0], action, resource, may_have_happened=may_have_happened
            )
            raise failed from e

    def unwritten(self, error: KafkaError, topic: str) -> OnceflowError:
        """What to raise for a record that was not taken."""
        if error.code() in TOO_LARGE:
            unknown = RefusedBatch(topic, 0, self._limit.bytes_max)
            return self._limit.refused(self.route.refused or unknown)
        return self._reasons.failure(error, "write", f"Topic {topic}")

    def close(self) -> None:
        self._calls.close()
        self._producer = None

    def _fatal_error(self, error: SystemError) -> KafkaException:
        """confluent-kafka raises a fatal error in the middle of the callbacks, which spoils both."""
        if isinstance(error.__cause__, KafkaException):
            return error.__cause__
        try:
            if self._producer is not None:
                self._producer.begin_transaction()
        except KafkaException as e:
            return e
        raise error
