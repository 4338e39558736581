"""Which route records take to librdkafka."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Producer

from onceflow.connectors.kafka.options import KafkaOptions
from onceflow.connectors.kafka.produce.librdkafka_batches import BulkRoute
from onceflow.connectors.kafka.produce.per_record import OneByOneRoute
from onceflow.connectors.kafka.produce.route import Route, open_route


def route(*, is_bulk: bool = True, **settings: Any) -> Route:
    options = KafkaOptions(
        "127.0.0.1:1",
        {name if name.endswith("_cb") else name.replace("_", "."): value for name, value in settings.items()},
    )
    producer = Producer(
        {
            "bootstrap.servers": "127.0.0.1:1",
            "log_level": 0,
            "client.id": settings.get("client_id", "rdkafka"),
        }
    )
    return open_route(producer, options, lambda text: None, lambda error: None, is_bulk=is_bulk)


def test_bulk_is_what_a_user_gets() -> None:
    assert isinstance(route(), BulkRoute)
    assert isinstance(route(client_id="mine"), BulkRoute)
    assert isinstance(route(sasl_mechanism="PLAIN"), BulkRoute)


@pytest.mark.parametrize(
    "settings",
    [
        {"throttle_cb": print},  # a function called while nobody is in confluent-kafka ends the process
        {"sasl_mechanism": "OAUTHBEARER"},
        {"sasl_mechanisms": "oauthbearer"},
        {"is_bulk": False},
    ],
    ids=str,
)
def test_one_by_one_where_librdkafka_may_call_back(settings: dict[str, Any]) -> None:
    assert isinstance(route(**settings), OneByOneRoute)
