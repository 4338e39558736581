"""Reasons: why a producer's calls fail, by what its error callback was told.

librdkafka itself mostly says no more than that a call timed out.
"""

from __future__ import annotations

from confluent_kafka import KafkaError

from onceflow.connectors.kafka.failures import connection_failure, failure
from onceflow.connectors.kafka.options import KafkaOptions
from onceflow.connectors.kafka.transactions.throttle import Throttle
from onceflow.runtime.errors import Fatal, OnceflowError, Retryable


class Reasons:
    """Why calls of one producer fail, as far as is known. `on_error` is its error callback."""

    def __init__(self, options: KafkaOptions, throttle: Throttle) -> None:
        self.throttle = throttle
        self._options = options
        self._reason = ""
        self.is_away = False
        """Whether no broker was there when one was last heard of."""

    def on_error(self, error: KafkaError) -> None:
        self._reason = error.str()
        self.is_away = error.code() == KafkaError._ALL_BROKERS_DOWN or self.is_away

    def failure(
        self, error: KafkaError, action: str, resource: str, *, may_have_happened: bool = False
    ) -> OnceflowError:
        """See failures.failure; a refused connection is the reason for whatever fails, and throttling for
        what takes too long."""
        known = connection_failure(self._reason, self._options.bootstrap_servers)
        explained = known or failure(error, action, resource, may_have_happened=may_have_happened)
        reasons = [] if isinstance(explained, Fatal) else [self._reason, self.throttle.reason]
        said = "; ".join(each for each in [str(explained), *reasons] if each)
        return type(explained)(self._options.redact(said))

    def no_progress(self, waited_s: float) -> Retryable:
        """What to raise after so long without an acknowledged record."""
        said = f"no record was acknowledged for {waited_s:.0f} s"
        reasons = [self._reason, self.throttle.reason]
        return Retryable(self._options.redact("; ".join(each for each in [said, *reasons] if each)))
