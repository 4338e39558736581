"""How records reach the broker: what a route is, and the two by librdkafka. `produce/choose.py` has the
third, past it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Protocol

import pyarrow as pa
from confluent_kafka import KafkaError, Producer

from onceflow.connectors.kafka.librdkafka.library import UnsupportedLibraryError, load_library
from onceflow.connectors.kafka.options import KafkaOptions
from onceflow.connectors.kafka.produce.batch_limit import RefusedBatch
from onceflow.connectors.kafka.produce.librdkafka_batches import BulkRoute
from onceflow.connectors.kafka.produce.per_record import OneByOneRoute

LOG: Any = logging.getLogger("onceflow.kafka")
"""What librdkafka logs; silent unless the program configures logging."""
LOG.addHandler(logging.NullHandler())


class Route(Protocol):
    """Hands records to librdkafka, or sends them, and knows which of them the broker has acknowledged."""

    delivered: int
    """How many records were acknowledged since `begin`."""
    first_failure: tuple[KafkaError, str] | None
    """Why the first record since `begin` will never be delivered, and its topic."""
    refused: RefusedBatch | None
    """What was refused, if that was for its size; of it alone, if that is known."""

    @property
    def may_commit(self) -> bool:
        """Whether everything that was sent since `begin` is acknowledged; True where librdkafka would
        refuse to commit it otherwise."""
        ...

    def begin(self) -> None: ...

    def send(self, rows: pa.RecordBatch, wait: Callable[[Callable[[], bool]], None]) -> None:
        """Queue rows (PRODUCE_SCHEMA). While the queue is full, `wait(is_sent)` calls is_sent until it is
        true. Raises KafkaException for a record that librdkafka refuses."""
        ...

    def poll(self, timeout_s: float) -> None:
        """Serve callbacks and count what was delivered; waits up to timeout_s for the first of it."""
        ...

    def is_flushed(self, timeout_s: float) -> bool:
        """Whether each record was acknowledged or has failed; waits for that."""
        ...

    def abort(self) -> None:
        """End what librdkafka does not know of. Called before it aborts the transaction; raises nothing."""
        ...

    def close(self) -> None:
        """Let go of the producer. Called before it goes; does not wait."""
        ...


def open_route(
    producer: Producer,
    options: KafkaOptions,
    on_statistics: Callable[[str], None],
    on_error: Callable[[KafkaError], None],
    *,
    is_bulk: bool,
) -> Route:
    """BulkRoute if it is wanted and can be used here, else OneByOneRoute. The callbacks are those that
    the producer was made with."""
    settings = options.librdkafka
    if is_bulk and not _needs_callbacks(options):
        try:
            library = load_library()
            handle = library.handle(producer, str(settings.get("client.id", "rdkafka")))
        except UnsupportedLibraryError as e:
            LOG.warning("records go to librdkafka one by one, because %s", e)
        else:
            return BulkRoute(library, producer, handle, on_statistics, on_error, _log)
    return OneByOneRoute(producer)


def _needs_callbacks(options: KafkaOptions) -> bool:
    """Whether librdkafka may want to call something while the bulk route polls: functions of the user
    would be called outside of confluent-kafka, which ends the process, and the refresh of a token would
    be taken for an event."""
    settings = options.librdkafka
    mechanism = settings.get("sasl.mechanism", settings.get("sasl.mechanisms", ""))
    return str(mechanism).upper() == "OAUTHBEARER" or any(callable(value) for value in settings.values())


def _log(level: int, text: str) -> None:
    """Log what librdkafka says; `level` is one of syslog's, which are mapped as confluent-kafka maps them."""
    LOG.log(logging.ERROR if level <= 3 else logging.WARNING if level == 4 else logging.INFO, "%s", text)
