"""TopicWatch: notices a topic that is deleted or made anew while it is read.

librdkafka says nothing of either: it goes on at the same offset of the new topic, whose records are
others. Only the topic's id tells them apart.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from concurrent.futures import Future, wait
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from onceflow.connectors.kafka.options import KafkaOptions
from onceflow.connectors.kafka.who_is_there import AWAY
from onceflow.runtime.clock import Clock
from onceflow.runtime.errors import DataLossError

_LOG = logging.getLogger(__name__)
_CONFIRMATIONS = 2
"""A broker that lags behind in metadata may tell of an earlier topic, once."""
_ANSWER_S = 5.0
"""A question for a broker that has died waits for that one."""


class TopicWatch:
    """Asks for the ids of topics every interval_ms, without ever waiting for the answer."""

    def __init__(self, options: KafkaOptions, clock: Clock, interval_ms: int) -> None:
        self._options = options
        self._clock = clock
        self._interval_ms = interval_ms
        self._admin: AdminClient | None = self._new_admin()
        self._expected: dict[str, str] = {}
        self._contradicted: dict[str, int] = {}
        self._pending: Mapping[str, Future[Any]] = {}
        self._next_ask_ms = 0.0
        self._was_away = False
        """Whoever librdkafka asked did not answer: it would ask the same one again, dead or not."""

    def add(self, topic_ids: Mapping[str, str]) -> None:
        """Watch these topics as well."""
        self._expected.update(topic_ids)

    def check(self) -> None:
        """Raises DataLossError for a topic that is gone or another one. Called at each poll."""
        assert self._admin is not None, "check after close"
        if self._pending and all(future.done() for future in self._pending.values()):
            answers, self._pending = self._pending, {}
            for name, future in answers.items():
                self._compare(name, future)
            if self._was_away:
                # To ask this one who is there would wait; a new one has to, before it asks anything else.
                self._admin, self._was_away = self._new_admin(), False
        now = self._clock.monotonic_ms()
        if not self._pending and self._expected and now >= self._next_ask_ms:
            self._next_ask_ms = now + self._interval_ms
            self._admin.poll(0)  # what the client logs would pile up
            wanted = TopicCollection(list(self._expected))
            self._pending = self._admin.describe_topics(wanted, request_timeout=_ANSWER_S)

    def confirm(self, name: str, timeout_s: float) -> None:
        """Ask for this topic at once, since what is seen of its log may be explained so: raises DataLossError
        if it is gone or another one. No answer within timeout_s says nothing."""
        assert self._admin is not None, "confirm after close"
        (future,) = self._admin.describe_topics(TopicCollection([name])).values()
        wait([future], timeout_s)
        if future.done():
            self._contradicted[name] = _CONFIRMATIONS - 1  # what was seen is the other one
            self._compare(name, future)

    def close(self) -> None:
        self._admin = None

    def _new_admin(self) -> AdminClient:
        return AdminClient(self._options.admin({"logger": _LOG}))

    def _compare(self, name: str, future: Future[Any]) -> None:
        try:
            found = str(future.result().topic_id)
        except KafkaException as error:
            code = error.args[0].code()
            self._was_away = self._was_away or code in AWAY
            if code != KafkaError.UNKNOWN_TOPIC_OR_PART:
                return  # the brokers are away: the reader's connection notices that
            found = ""
        if found == self._expected[name]:
            self._contradicted.pop(name, None)
            return
        self._contradicted[name] = self._contradicted.get(name, 0) + 1
        if self._contradicted[name] < _CONFIRMATIONS:
            return
        raise DataLossError(
            f"topic {name!r} has been deleted while it was read"
            if not found
            else f"topic {name!r} has been deleted and made anew while it was read (its id was "
            f"{self._expected[name]} and is {found}): start the job anew, without the checkpoint"
        )
