"""ReaderConnection: whether the brokers that a reader needs are there.

librdkafka reconnects by itself and says little about it. Its error callback gives the reason of a
cut, its statistics (once a second) which brokers are up and who leads which partition. A broker that it
holds no connection to, because nothing is asked of it (what is read directly is asked elsewhere, and an
idle connection is closed), is not away: nothing is known against it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from confluent_kafka import KafkaError

from onceflow.connectors.kafka.failures import connection_failure
from onceflow.connectors.kafka.metadata import PartitionKey
from onceflow.connectors.kafka.options import KafkaOptions
from onceflow.runtime.clock import Clock
from onceflow.runtime.errors import Unavailable

STATISTICS_INTERVAL_MS = 1_000
_SILENT_US = 5_000_000
"""A broker that is fetched from answers every fetch.wait.max.ms. Silent for so long, though it was asked: it
is frozen."""
_SAY_AFTER_MS = 1_000
"""What lasts for less is no news: a leader that has moved is found within that."""
_MUTE_TOLD_MS = 1_000
"""A broker that throttles us for so long makes the job wait; less is not worth a word."""
_READING = "active"
_STOPPED_MS = 10_000
"""An assigned partition that librdkafka does not read for so long, though its leader is there, it has given
up: it begins within a second."""
_ASKED_US = 1_000_000
"""What was asked less long ago may be answered any moment, however long nothing was asked before."""


class _Broker(msgspec.Struct, gc=False):
    nodeid: int
    state: str
    rxidle: int = -1
    txidle: int = -1
    waitresp_cnt: int = 0

    @property
    def is_frozen(self) -> bool:
        """What is read directly (fetch/backlog.py) is not asked here: silence alone says nothing."""
        is_asked = self.waitresp_cnt > 0 and self.txidle >= _ASKED_US
        return is_asked and self.rxidle >= _SILENT_US


class _Partition(msgspec.Struct, gc=False):
    leader: int = -1
    desired: bool = False
    fetch_state: str = _READING

    @property
    def is_stopped(self) -> bool:
        """Assigned, and not read: for a moment each is, until it has begun."""
        return self.desired and self.fetch_state != _READING


class _Topic(msgspec.Struct, gc=False):
    partitions: dict[str, _Partition] = {}


class _Statistics(msgspec.Struct, gc=False):
    brokers: dict[str, _Broker] = {}
    topics: dict[str, _Topic] = {}


class ReaderConnection:
    """The callbacks run on the reader's own thread, inside consume()."""

    def __init__(
        self, options: KafkaOptions, timeout_ms: int, clock: Clock, on_wait: Callable[[str], None]
    ) -> None:
        self._options = options
        self._timeout_ms = timeout_ms
        self._clock = clock
        self._on_wait = on_wait
        self._decode = msgspec.json.Decoder(_Statistics).decode
        self._statistics = _Statistics()
        self._there: frozenset[int] = frozenset()
        """Brokers that are up, or of which nothing is asked."""
        self._was_up = False
        self._are_all_down = False
        self._is_a_leader_down = False
        self._reason = "no answer"
        self._away_since_ms: float | None = None
        self._muted_until_ms = 0.0
        self._is_mute_told = False
        self._stopped_since_ms: dict[PartitionKey, float] = {}

    def on_error(self, error: KafkaError) -> None:
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self._are_all_down = True
            return
        self._reason = self._options.redact(error.str())
        refusal = connection_failure(self._reason, self._options.bootstrap_servers)
        if refusal is not None and not self._was_up:
            raise refusal

    def on_statistics(self, text: str) -> None:
        self._statistics = self._decode(text)
        brokers = [broker for broker in self._statistics.brokers.values() if broker.nodeid >= 0]
        up = [b for b in brokers if b.state in ("UP", "UPDATE") and (self.is_muted or not b.is_frozen)]
        unasked = [broker for broker in brokers if broker.state == "INIT"]
        self._there = frozenset(broker.nodeid for broker in (*up, *unasked))
        self._is_a_leader_down = any(
            partition.leader not in self._there
            for topic in self._statistics.topics.values()
            for number, partition in topic.partitions.items()
            if number != "-1"  # librdkafka's own, for records without a partition
        )
        self._was_up = self._was_up or bool(up)
        if self._there:
            self._are_all_down = False
        now_ms, before = self._clock.monotonic_ms(), self._stopped_since_ms
        stopped = [
            (topic, int(number))
            for topic, known in self._statistics.topics.items()
            for number, partition in known.partitions.items()
            if partition.is_stopped
        ]
        self._stopped_since_ms = {
            key: before.get(key, now_ms) for key in stopped if not (self.is_muted or self.is_away(key))
        }

    def on_throttle(self, event: Any) -> None:
        """librdkafka's throttle_cb."""
        self.on_mute(round(1000 * event.throttle_time))

    def on_mute(self, mute_ms: int) -> None:
        """A broker has said that it does not listen to us for so long: a quota is used up (KIP-219). It is
        silent then, and is not away."""
        now_ms = self._clock.monotonic_ms()
        self._muted_until_ms = max(self._muted_until_ms, now_ms + mute_ms)
        if mute_ms >= _MUTE_TOLD_MS:
            self._is_mute_told = True
            self._on_wait(
                f"Kafka at {self._options.bootstrap_servers} throttles this client for "
                f"{mute_ms / 1000:.1f} s: the quota of its user or client.id is used up"
            )

    @property
    def is_muted(self) -> bool:
        """Kafka throttles us, as far as is known."""
        return self._clock.monotonic_ms() < self._muted_until_ms

    @property
    def is_sound(self) -> bool:
        """Every leader is there, as far as is known: then no partition needs to be asked for."""
        is_any_away = self._are_all_down or self._is_a_leader_down or self._away_since_ms is not None
        return not (is_any_away or self._is_mute_told)

    def is_away(self, partition: PartitionKey) -> bool:
        """Nothing is known of this partition for now: its leader can't be reached."""
        if self._are_all_down:
            return True
        topic = self._statistics.topics.get(partition[0])
        known = topic.partitions.get(str(partition[1])) if topic else None
        return known is not None and known.leader not in self._there

    def stopped(self) -> list[PartitionKey]:
        """Partitions that librdkafka has silently given up: it was told to read them, does not, and nothing
        is known that it could wait for. Each is told once in ten seconds."""
        if not self._stopped_since_ms:
            return []
        now_ms = self._clock.monotonic_ms()
        found = [key for key, ms in self._stopped_since_ms.items() if now_ms - ms >= _STOPPED_MS]
        self._stopped_since_ms.update(dict.fromkeys(found, now_ms))
        return found

    def check(self, needed: Iterable[PartitionKey]) -> None:
        """Tell what is waited for; raise Unavailable once that has lasted for the timeout."""
        away = [partition for partition in needed if self.is_away(partition)]
        if self._is_mute_told and not self.is_muted:
            self._is_mute_told = False
            self._on_wait("")
        if not away:
            self._away_since_ms = None
            return
        now = self._clock.monotonic_ms()
        if self._away_since_ms is None:
            self._away_since_ms = now
        waited_ms = now - self._away_since_ms
        topic, number = away[0]
        more = f" and {len(away) - 1} more" if len(away) > 1 else ""
        sentence = (
            f"Kafka at {self._options.bootstrap_servers} is away since {waited_ms / 1000:.0f} s, "
            f"so {topic}-{number}{more} can't be read: {self._reason}"
        )
        if waited_ms >= self._timeout_ms:
            self._away_since_ms = None
            raise Unavailable(f"{sentence}. Waited for broker_timeout ({self._timeout_ms / 1000:g} s)")
        if waited_ms >= _SAY_AFTER_MS:
            self._on_wait(sentence)
