"""Enlisting: which partitions are in a direct producer's transaction, as its coordinator is told."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from confluent_kafka import KafkaError

from onceflow.connectors.kafka.client import ProducerIdentity
from onceflow.connectors.kafka.failures import failure
from onceflow.connectors.kafka.produce.leaders import Leaders
from onceflow.connectors.kafka.protocol.transaction_messages import (
    PartitionResult,
    add_partitions_answer,
    add_partitions_request,
    end_request,
)
from onceflow.connectors.kafka.protocol.wire import ProtocolError

_NOT_ATTEMPTED = KafkaError.OPERATION_NOT_ATTEMPTED
"""Said of a partition because of what is said of another one."""
_PAUSE_FIRST_S = 0.002
_PAUSE_MAX_S = 0.1
_PAUSES_S = 10.0

Place = tuple[str, int]
"""A topic and a partition."""


class Enlisting:
    """Adds partitions to the transaction of one producer. Every call may raise OSError, ProtocolError, or
    what `failure` makes of Kafka's errors."""

    def __init__(
        self,
        leaders: Leaders,
        transactional_id: str,
        identity: ProducerIdentity,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._leaders = leaders
        self._transactional_id = transactional_id
        self._identity = identity
        self._sleep = sleep
        self._places: set[Place] = set()

    def __bool__(self) -> bool:
        """Whether the transaction has any partition, as far as is known."""
        return bool(self._places)

    def begin(self) -> None:
        self._places.clear()

    def add(self, places: Iterable[Place]) -> None:
        """Add these partitions to the transaction, before anything is written to them. Idempotent."""
        missing = [place for place in places if place not in self._places]
        if not missing:
            return
        wanted: dict[str, list[int]] = {}
        for topic, number in missing:
            wanted.setdefault(topic, []).append(number)
        request = partial(
            add_partitions_request,
            transactional_id=self._transactional_id,
            identity=self._identity,
            partitions=wanted,
        )
        coordinator = self._leaders.coordinator()
        pauses = settling_pauses()
        while True:
            answer = add_partitions_answer(coordinator.ask(request, {}))
            coordinator.mute(answer.throttle_ms)
            # The transaction before is committed, but its markers are not written everywhere yet.
            is_settling = any(r.error == KafkaError.CONCURRENT_TRANSACTIONS for r in answer.results)
            pause_s = next(pauses, None)
            if not is_settling or pause_s is None:
                break
            self._sleep(pause_s)
        raise_first(answer.results)
        if {(result.topic, result.partition) for result in answer.results} != set(missing):
            raise ProtocolError("the answer is not for the partitions that were to be added")
        self._places.update(missing)

    def abort(self) -> None:
        """End the transaction, uncommitted."""
        request = partial(
            end_request,
            transactional_id=self._transactional_id,
            identity=self._identity,
            is_commit=False,
        )
        self._leaders.coordinator().ask(request, {})


def settling_pauses() -> Iterator[float]:
    """How long to wait between questions: markers are mostly written within milliseconds, and a broker that
    takes longer is not helped by more questions."""
    pause_s, left_s = _PAUSE_FIRST_S, _PAUSES_S
    while left_s > 0.0:
        yield pause_s
        left_s -= pause_s
        pause_s = min(2 * pause_s, _PAUSE_MAX_S)


def raise_first(results: Iterable[PartitionResult]) -> None:
    """What was first to fail, if anything did."""
    failed = [result for result in results if result.error]
    failed.sort(key=lambda result: result.error == _NOT_ATTEMPTED)
    if failed:
        first = failed[0]
        error = KafkaError(first.error, first.message or None)
        raise failure(error, "write", f"Topic {first.topic}")
