"""DirectReading: when partitions are read from their brokers, past librdkafka, and by what."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from onceflow.connectors.kafka.protocol.eligibility import PAUSE_S

if TYPE_CHECKING:  # they import numba
    from onceflow.connectors.kafka.fetch.broker_lanes import LeaderFetch
    from onceflow.connectors.kafka.protocol.polling_connection import BrokerConnection


@dataclass(frozen=True, slots=True)
class DirectReading:
    """When partitions are read directly, and by what. Only tests give other values than these."""

    records_behind: int = 50_000
    """A partition that has so many records more is worth a request of its own."""
    full_fetches: int = 3
    """After this many full fetches in a row librdkafka is taken to have more records than we take."""
    pause_s: float = PAUSE_S
    answer_bytes_max: int = 8 << 20
    partition_bytes_min: int = 256 << 10
    """What each partition may answer at least, however many there are."""
    connection: type[BrokerConnection] | None = None
    """None: BrokerConnection itself."""
    leader: type[LeaderFetch] | None = None
    """None: LeaderFetch itself."""


AS_USERS_DO = DirectReading()
