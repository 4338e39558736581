"""What onceflow takes for granted of confluent-kafka's objects; each new release must pass this."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from onceflow.connectors.kafka.librdkafka_library import UnsupportedLibraryError, load_library

QUIET: dict[str, Any] = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0, "error_cb": lambda _: None}


@pytest.mark.parametrize(
    ("make", "kind"),
    [(lambda: Producer(QUIET | {"client.id": "me"}), 0), (lambda: Consumer(QUIET | {"group.id": "g"}), 1)],
    ids=["producer", "consumer"],
)
def test_first_field_of_a_client_is_the_handle_of_librdkafka(make: Any, kind: int) -> None:
    library, client = load_library(), make()
    handle = library.handle(client, "me" if kind == 0 else "rdkafka")
    assert library.rd_kafka_type(handle) == kind


def test_handle_of_another_client_is_not_taken() -> None:
    with pytest.raises(UnsupportedLibraryError, match="something else"):
        load_library().handle(Producer(QUIET), "another")


def test_two_clients_have_two_handles() -> None:
    library = load_library()
    first, second = Producer(QUIET), Producer(QUIET)
    assert library.handle(first, "rdkafka") != library.handle(second, "rdkafka")
