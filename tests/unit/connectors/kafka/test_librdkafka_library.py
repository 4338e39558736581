"""What onceflow takes for granted of confluent-kafka's objects; each new release must pass this."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from onceflow.connectors.kafka.librdkafka_library import client_address, function, library

QUIET: dict[str, Any] = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0, "error_cb": lambda _: None}


@pytest.mark.parametrize(
    ("client", "kind"),
    [
        (lambda: Producer(QUIET | {"client.id": "contract"}), 0),
        (lambda: Consumer(QUIET | {"client.id": "contract", "group.id": "g"}), 1),
    ],
    ids=["producer", "consumer"],
)
def test_first_field_of_a_client_is_the_handle_of_librdkafka(client: Any, kind: int) -> None:
    assert library() is not None
    opened = client()
    address = client_address(opened)
    name = function("rd_kafka_name", ctypes.c_char_p, ctypes.c_void_p)(address)
    assert name.startswith(b"contract#")
    assert function("rd_kafka_type", ctypes.c_int, ctypes.c_void_p)(address) == kind


def test_two_clients_have_two_handles() -> None:
    first, second = Producer(QUIET), Producer(QUIET)
    assert client_address(first) != client_address(second)
