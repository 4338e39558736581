"""Calling confluent_kafka's librdkafka directly: only what is surely a consumer's handle is used."""

from __future__ import annotations

import ctypes
import ctypes.util
import logging
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import Consumer, Producer

from onceflow.connectors.kafka.fetch.choose import open_fetcher
from onceflow.connectors.kafka.fetch.per_message import MessageFetcher
from onceflow.connectors.kafka.fetched import Wanted
from onceflow.connectors.kafka.librdkafka.library import (
    TESTED,
    Library,
    UnsupportedLibraryError,
    load_library,
)
from onceflow.connectors.kafka.reader_splits import SplitTable
from onceflow.runtime.kernels.ops import PLAIN, ops, using

SETTINGS = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0}


def load() -> Library:
    try:
        return load_library()
    except UnsupportedLibraryError as reason:
        pytest.skip(str(reason))


def test_the_library_is_the_one_that_confluent_kafka_uses() -> None:
    library = load()
    assert library.rd_kafka_version() == confluent_kafka.libversion()[1]
    with pytest.raises(UnsupportedLibraryError, match="can't be used"):
        Library("/no/such/librdkafka.so")
    with pytest.raises(UnsupportedLibraryError, match="rd_kafka_version"):
        Library(ctypes.util.find_library("c") or "libc.so.6")


def test_the_librdkafka_that_is_installed_is_one_that_was_tried() -> None:
    """If it is not, run tests/integration with it, first of all test_kafka_produce_routes.py, which says
    whether a producer outlives a commit; then widen TESTED, and the range of confluent-kafka in
    pyproject.toml."""
    assert confluent_kafka.libversion()[1] >> 16 in TESTED


@pytest.mark.parametrize("client_id", ["rdkafka", "mine", "long" * 50])
def test_a_clients_handle_is_known_by_its_name(client_id: str) -> None:
    consumer = Consumer({**SETTINGS, "client.id": client_id})
    handle = load().handle(consumer, client_id)
    name = ctypes.string_at(load().rd_kafka_name(handle)).decode()
    assert name.startswith(f"{client_id}#consumer-"[:127])
    consumer.close()
    producer = Producer({"bootstrap.servers": "127.0.0.1:1", "client.id": client_id, "log_level": 0})
    name = ctypes.string_at(load().rd_kafka_name(load().handle(producer, client_id))).decode()
    assert name.startswith(f"{client_id}#producer-"[:127])


class Odd:
    """Looks like nothing: after its head comes what is put there."""

    __slots__ = ("a", "b")


def test_what_is_no_handle_of_this_consumer_is_refused_without_a_crash() -> None:
    library = load()
    consumer = Consumer(SETTINGS)
    with pytest.raises(UnsupportedLibraryError, match="something else"):
        library.handle(consumer, "another")
    consumer.close()
    closed: Any = consumer  # its handle is null
    with pytest.raises(UnsupportedLibraryError, match="elsewhere"):
        library.handle(closed, "rdkafka")
    producer = Producer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
    with pytest.raises(UnsupportedLibraryError, match="something else"):
        library.handle(producer, "another")
    odd: Any = Odd()
    odd.a = "x" * 5_000  # a pointer into memory that is no handle
    with pytest.raises(UnsupportedLibraryError):
        library.handle(odd, "rdkafka")
    number: Any = 1 << 200  # its length where the handle would be: an address where nothing is
    with pytest.raises(UnsupportedLibraryError):
        library.handle(number, "rdkafka")


@pytest.mark.skipif(not ops().are_compiled, reason="needs numba")
def test_where_the_library_is_no_help_records_are_fetched_one_by_one_and_the_log_says_why(
    caplog: pytest.LogCaptureFixture,
) -> None:
    consumer = Consumer(SETTINGS)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            wrong = {**SETTINGS, "client.id": "another"}
            fetcher = open_fetcher(consumer, wrong, SplitTable(), Wanted(), 10)
            assert isinstance(fetcher, MessageFetcher)
    assert [r.getMessage() for r in caplog.records] == [
        "records are fetched one by one, because what should be a consumer's handle is something else"
    ]
    consumer.close()


def test_without_kernels_records_are_fetched_one_by_one() -> None:
    consumer = Consumer(SETTINGS)
    with using(PLAIN):
        assert isinstance(open_fetcher(consumer, SETTINGS, SplitTable(), Wanted(), 10), MessageFetcher)
    consumer.close()
