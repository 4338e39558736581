"""The choice of the Fetcher that a reader gets."""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping
from typing import Any

from confluent_kafka import Consumer

from onceflow.connectors.kafka.fetch.direct_reading import DirectReading
from onceflow.connectors.kafka.fetch.per_message import MessageFetcher
from onceflow.connectors.kafka.fetched import Fetcher, OnThrottle, Wanted
from onceflow.connectors.kafka.librdkafka.library import Library, UnsupportedLibraryError, load_library
from onceflow.connectors.kafka.reader_splits import SplitTable
from onceflow.runtime.kernels.ops import ops

_LOG = logging.getLogger(__name__)
_CLIENT_ID = "rdkafka"  # librdkafka's default


def open_fetcher(
    consumer: Consumer,
    settings: Mapping[str, Any],
    splits: SplitTable,
    wanted: Wanted,
    room: int,
    *,
    direct: DirectReading | None = None,
    on_throttle: OnThrottle = lambda ms: None,
) -> Fetcher:
    """The bulk one, or the direct one around it if that may be; without kernels the one that takes messages
    one by one.

    `settings`: those the consumer was made with. `room`: how many records a fetch has memory for. Where
    librdkafka can't be called directly the log says why, once.
    """
    if not ops().are_compiled:
        return MessageFetcher(consumer, splits, wanted)
    try:
        library = _library()
        handle = library.handle(consumer, str(settings.get("client.id", _CLIENT_ID)))
    except UnsupportedLibraryError as reason:
        _log_once(str(reason))
        return MessageFetcher(consumer, splits, wanted)
    from onceflow.connectors.kafka.fetch.backlog import DirectFetcher
    from onceflow.connectors.kafka.fetch.lane_opener import fetch_settings
    from onceflow.connectors.kafka.fetch.librdkafka_queue import BulkFetcher  # imports numba, as the next

    bulk = BulkFetcher(library, handle, consumer, splits, wanted, room)
    found = None if direct is None else fetch_settings(settings, direct)
    if found is None:
        return bulk
    return DirectFetcher(bulk, consumer, splits, wanted, room, found, on_throttle)


@functools.cache
def _library() -> Library:
    return load_library()


@functools.cache
def _log_once(reason: str) -> None:
    _LOG.warning("records are fetched one by one, because %s", reason)
