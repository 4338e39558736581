"""The second partition of a ledger topic: given where it may be (a real broker:
integration/test_replaced_coordinator)."""

from __future__ import annotations

import logging
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from onceflow.connectors.kafka.transactions.ledger_topics import LedgerTopics
from onceflow.runtime.errors import Fatal


def admin_that_answers(code: int) -> Any:
    answer: Future[None] = Future()
    answer.set_exception(KafkaException(KafkaError(code)))

    def answered(wanted: list[Any], request_timeout: float) -> dict[str, Future[None]]:
        return {wanted[0].topic: answer}

    return SimpleNamespace(create_topics=answered, create_partitions=answered)


def reader_of(partitions: int) -> Any:
    found = SimpleNamespace(error=None, partitions=dict.fromkeys(range(partitions)))
    return SimpleNamespace(list_topics=lambda topic, timeout: SimpleNamespace(topics={topic: found}))


def test_somebody_else_was_faster() -> None:
    topics = LedgerTopics()
    topics.create("ledgers", admin_that_answers(KafkaError.TOPIC_ALREADY_EXISTS))
    topics.extend("ledgers", admin_that_answers(KafkaError.INVALID_PARTITIONS))
    assert topics.has_two_partitions("ledgers", reader_of(2))


def test_one_that_may_not_be_extended_is_told_once_and_read_as_before(
    caplog: pytest.LogCaptureFixture,
) -> None:
    denied = admin_that_answers(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    with caplog.at_level(logging.WARNING, "onceflow.kafka"):
        for topics in (LedgerTopics(), LedgerTopics()):
            topics.extend("not-ours", denied)
            assert not topics.has_two_partitions("not-ours", reader_of(1))
    (said,) = caplog.messages
    assert "give the topic 2 partitions" in said


def test_a_broker_that_is_away_is_asked_again() -> None:
    with pytest.raises(KafkaException):
        LedgerTopics().extend("ledgers", admin_that_answers(KafkaError._TIMED_OUT))
    with pytest.raises(KafkaException):
        LedgerTopics().create("ledgers", admin_that_answers(KafkaError._TIMED_OUT))


def test_who_may_not_create_it_reads_how_it_has_to_be() -> None:
    with pytest.raises(Fatal, match=r"have it created \(2 partitions, it stays empty\)"):
        LedgerTopics().create("ledgers", admin_that_answers(KafkaError.TOPIC_AUTHORIZATION_FAILED))
