"""CutsWatch: how often a producer's connections broke, who it is to the broker, and whether brokers
throttle it, from librdkafka's statistics.

Nothing else tells: the error callback does not fire for a connection that is cut and made again.
"""

from __future__ import annotations

import time

import msgspec

from onceflow.connectors.kafka.client import ProducerIdentity
from onceflow.connectors.kafka.transactions.throttle import Throttle


class _Window(msgspec.Struct):
    max: int = 0


class _Broker(msgspec.Struct):
    disconnects: int = 0
    req_timeouts: int = 0
    throttle: _Window | None = None
    """Milliseconds, of the answers since the statistics before."""


class _ExactlyOnce(msgspec.Struct):
    producer_id: int
    producer_epoch: int


class _Statistics(msgspec.Struct):
    ts: int
    brokers: dict[str, _Broker] = {}
    eos: _ExactlyOnce | None = None


_decode = msgspec.json.Decoder(_Statistics).decode


class CutsWatch:
    """Fed with every statistics text; `mark` draws the line from which `since_mark` counts."""

    def __init__(self, throttle: Throttle) -> None:
        """`throttle`: is told what brokers have announced."""
        self._throttle = throttle
        self.sample_us = 0
        """When the latest statistics were made, by now_us."""
        self.identity: ProducerIdentity | None = None
        """What the last init got; None: there was none."""
        self._total = 0
        self._marked = 0

    def on_statistics(self, text: str) -> None:
        statistics = _decode(text)
        self.sample_us = statistics.ts
        eos = statistics.eos
        has_init = eos is not None and eos.producer_id >= 0
        self.identity = ProducerIdentity(eos.producer_id, eos.producer_epoch) if eos and has_init else None
        self._total = sum(broker.disconnects + broker.req_timeouts for broker in statistics.brokers.values())
        for broker in statistics.brokers.values():
            if broker.throttle is not None and broker.throttle.max > 0:
                self._throttle.announce(statistics.ts / 1e6, broker.throttle.max / 1e3)

    def mark(self) -> None:
        self._marked = self._total

    def since_mark(self) -> int:
        """Broken connections and timed-out requests."""
        return self._total - self._marked


def now_us() -> int:
    """librdkafka's clock, by which it dates statistics."""
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
