"""RabbitQueueSource: queues of RabbitMQ, each message once, acknowledged with the checkpoint that counts
it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from onceflow.connectors.bad_records import Tolerance
from onceflow.connectors.collections.fixed_splits import FixedSplits
from onceflow.connectors.formats import Format
from onceflow.connectors.message_fields import named_fields
from onceflow.connectors.message_source import MessageSource
from onceflow.runtime.clock import Clock
from onceflow.runtime.contracts import ReaderContext, Sink, SplitState
from onceflow.runtime.durations import duration_ms
from onceflow.runtime.errors import OptionError
from onceflow.runtime.explained_calls import explained

if TYPE_CHECKING:
    from onceflow.connectors.acknowledged.reader import QueueReader

_PREFETCH_MAX = 65_535
_TIMEOUT_MIN_MS = 60_000


@explained
@dataclass(frozen=True, kw_only=True)
class RabbitQueueSource(MessageSource):
    """Reads `queues` of RabbitMQ (AMQP 0.9.1), each message once. A Source; connects only when the job runs.
    Needs `pip install 'onceflow[rabbitmq]'`.

    A message is acknowledged when the checkpoint is complete that counts it. Until then its id is in the
    checkpoint, and what is delivered again is left out; so each message needs an id of its own
    (`message_id`). Each queue is a split, read by one slot as the queue's only consumer.
    """

    queues: Sequence[str]
    value: Format
    """What the body of a message is: Json(Order)."""
    url: str = field(default="amqp://localhost", repr=False)
    """"amqp://user:${RABBIT_PASSWORD}@host:5672/vhost"; `${NAME}` is that variable of the slots'
    environment."""
    id_header: str | None = None
    """The header with a message's id. None: its property message_id."""
    prefetch: int = 20_000
    """How many messages of a queue may be unacknowledged at once: what comes in a checkpoint interval, and
    more. Reading stops at it until a checkpoint is complete."""
    consumer_timeout: str | int = "30 min"
    """The server's own setting of this name. If no checkpoint is complete in half of it, the job ends."""
    remember: str | int = "10 s"
    """For how long a server that is killed may forget that a message was acknowledged."""
    bounded: bool = False
    """Whether the source ends when its queues are empty."""
    id_column: str | None = None
    routing_key_column: str | None = None
    """Names of columns with a message's id and its routing key."""
    timeout: str | int = "2 min"
    """How long the server may be away, or another consumer there, before the attempt fails."""
    errors_tolerance: Tolerance = "none"
    """"none": a message that can't be decoded ends the job. "all": it goes to dead_letters."""
    dead_letters: Sink | None = None
    """Any sink for messages that can't be decoded; errors_tolerance is then "all"."""
    columns: frozenset[str] | None = field(default=None, repr=False)
    """Set by project(): the columns that the job reads."""

    def __post_init__(self) -> None:
        queues = (self.queues,) if isinstance(self.queues, str) else tuple(self.queues)
        object.__setattr__(self, "queues", queues)
        _check(self)

    # --- Source ---

    @property
    def takes_what_it_reads(self) -> bool:
        """See TakingSource."""
        return True

    @property
    def is_bounded(self) -> bool:
        return self.bounded

    @property
    def plan_note(self) -> str:
        return "exactly once: acknowledged with the checkpoint, and what comes again is known by its id"

    def open_enumerator(self, job: str, clock: Clock) -> FixedSplits:
        return FixedSplits([SplitState(queue, {"count": 0, "ids": ""}) for queue in self.queues])

    def open_reader(self, context: ReaderContext) -> QueueReader:
        from onceflow.connectors.acknowledged.reader import QueueReader, QueueSettings
        from onceflow.connectors.rabbitmq.deliveries import RabbitDeliveries

        settings = QueueSettings(
            self.bounded,
            duration_ms(self.remember, "remember"),
            duration_ms(self.timeout, "timeout"),
            duration_ms(self.consumer_timeout, "consumer_timeout"),
            "raise the server's consumer_timeout, and say it here",
        )
        connect = partial(
            RabbitDeliveries,
            self.url,
            prefetch=self.prefetch,
            id_header=self.id_header,
            looks_for_end=self.bounded,
            context=context,
        )
        return QueueReader(connect, self.rows(), self.read_beside(), settings, context)

    # --- Parts ---

    def beside(self) -> dict[str, pa.Field]:
        """See MessageSource."""
        names = {"id": self.id_column, "routing_key": self.routing_key_column}
        return named_fields({}, tuple(names), **names)


def _check(source: RabbitQueueSource) -> None:
    source.check_message_source("rabbitmq", "pika", ("remember", "timeout"))
    source.check_names("queues", "queues")
    if not isinstance(source.url, str) or not source.url.startswith(("amqp://", "amqps://")):
        raise OptionError("RabbitQueueSource: url: give an address that begins with amqp:// or amqps://")
    if not (isinstance(source.prefetch, int) and 0 < source.prefetch <= _PREFETCH_MAX):
        raise OptionError(
            f"RabbitQueueSource: prefetch={source.prefetch!r}: give a number from 1 to {_PREFETCH_MAX}"
        )
    if duration_ms(source.consumer_timeout, "consumer_timeout") < _TIMEOUT_MIN_MS:
        raise OptionError(
            f"RabbitQueueSource: consumer_timeout={source.consumer_timeout!r} is too short for checkpoints: "
            "let it be a minute or more, here and on the server"
        )
