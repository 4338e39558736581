"""KnownTopics: what a sink knows of its topics, asked again now and then."""

from __future__ import annotations

from collections.abc import Sequence

from onceflow.connectors.kafka.client import KafkaClient, TopicDescription
from onceflow.runtime.clock import Clock
from onceflow.runtime.errors import Retryable

_REFRESH_MS = 300_000
_AGAIN_MS = 30_000
"""A question to brokers that are away takes seconds, which the commits wait."""


class KnownTopics:
    """What is known of the topics of one sink."""

    def __init__(self, client: KafkaClient, names: Sequence[str], clock: Clock) -> None:
        self.descriptions: dict[str, TopicDescription] = {}
        self._client = client
        self._names = list(names)
        self._clock = clock
        self._due_ms = clock.monotonic_ms()

    def look_up(self) -> dict[str, TopicDescription]:
        """What the brokers say now: a topic that does not exist is missing. Raises what `describe_topics`
        raises."""
        self.descriptions = {**self.descriptions, **self._client.describe_topics(self._names)}
        self._due_ms = self._clock.monotonic_ms() + _REFRESH_MS
        return self.descriptions

    def add(self, name: str) -> bool:
        """Ask for one more topic. False: it does not exist. Raises what `describe_topics` raises."""
        found = self._client.describe_topics([name])
        if found:
            self.descriptions = {**self.descriptions, **found}
            self._names.append(name)
        return bool(found)

    def refresh(self) -> None:
        """If it is time. Nothing rests on an answer that is minutes old: if a broker is away, it is kept,
        and asked for again later."""
        if self._clock.monotonic_ms() > self._due_ms:
            try:
                self.look_up()
            except Retryable:
                self._due_ms = self._clock.monotonic_ms() + _AGAIN_MS
