"""PubSubSource: subscriptions of Google Cloud Pub/Sub, each message once, acknowledged with the checkpoint
that counts it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from onceflow.connectors.bad_records import Tolerance
from onceflow.connectors.collections.fixed_splits import FixedSplits
from onceflow.connectors.formats import Format
from onceflow.connectors.message_fields import attribute_fields, named_fields
from onceflow.connectors.message_source import MessageSource
from onceflow.runtime.clock import Clock
from onceflow.runtime.contracts import ReaderContext, Sink, SplitState
from onceflow.runtime.durations import duration_ms
from onceflow.runtime.errors import OptionError
from onceflow.runtime.explained_calls import explained

if TYPE_CHECKING:
    from onceflow.connectors.acknowledged.reader import QueueReader

_PATH = re.compile(r"projects/[^/]+/subscriptions/[^/]+")
_TYPES = {"publish_time": pa.timestamp("us", tz="UTC")}
_DEADLINE_MIN_MS, _DEADLINE_MAX_MS = 1_000, 600_000
_LEASE_MIN_MS = 60_000


@explained
@dataclass(frozen=True, kw_only=True)
class PubSubSource(MessageSource):
    """Reads `subscriptions` of Google Cloud Pub/Sub, each message once. A Source; connects only when the job
    runs. Needs `pip install 'onceflow[pubsub]'`.

    A message is acknowledged when the checkpoint is complete that counts it. Until then the source extends
    its deadline, and its id is in the checkpoint; what is delivered again is left out. Each subscription is a
    split, read by one slot: let it be the subscription's only subscriber.
    """

    subscriptions: Sequence[str]
    """Names of subscriptions of `project_id`, or "projects/PROJECT/subscriptions/NAME"."""
    value: Format
    """What the data of a message is: Json(Order)."""
    project_id: str | None = None
    emulator_host: str | None = None
    """"localhost:8085": an emulator instead of Google's own. None: as PUBSUB_EMULATOR_HOST says where the
    slots run."""
    endpoint: str | None = None
    """"europe-west1-pubsub.googleapis.com": another address than the global one."""
    prefetch: int = 20_000
    """How many messages of a subscription may be unacknowledged at once: what comes in a checkpoint interval,
    and more. Reading stops at it until a checkpoint is complete."""
    ack_deadline: str | int = "30 s"
    """For how long the service waits for a sign of the slot, which sends one each third of it, before it
    delivers again: Google's takes 10 s to 10 min. After a kill it takes so long until messages come again."""
    lease: str | int = "1 h"
    """For how long a message may be held without a complete checkpoint. If none is complete in half of it,
    the job ends."""
    remember: str | int = "1 min"
    """For how long the service may deliver a message that was acknowledged: two `ack_deadline`s or more."""
    until_quiet: str | int | None = None
    """End when a subscription has brought nothing for so long, and has nothing then; longer than
    `ack_deadline`. None: never."""
    id_column: str | None = None
    publish_time_column: str | None = None
    ordering_key_column: str | None = None
    """Names of columns with a message's id, the time of its publication and its ordering key."""
    attribute_columns: Mapping[str, str] = field(default_factory=dict)
    """Columns with attributes: {"kind": "event-type"} is a column kind with the attribute event-type, null
    where a message lacks it."""
    timeout: str | int = "2 min"
    """How long Pub/Sub may be away before the attempt fails."""
    errors_tolerance: Tolerance = "none"
    """"none": a message that can't be decoded ends the job. "all": it goes to dead_letters."""
    dead_letters: Sink | None = None
    """Any sink for messages that can't be decoded; errors_tolerance is then "all"."""
    columns: frozenset[str] | None = field(default=None, repr=False)
    """Set by project(): the columns that the job reads."""

    def __post_init__(self) -> None:
        given = (self.subscriptions,) if isinstance(self.subscriptions, str) else tuple(self.subscriptions)
        object.__setattr__(self, "subscriptions", given)
        object.__setattr__(self, "attribute_columns", dict(self.attribute_columns))
        _check(self)

    # --- Source ---

    @property
    def takes_what_it_reads(self) -> bool:
        """See TakingSource."""
        return True

    @property
    def is_bounded(self) -> bool:
        return self.until_quiet is not None

    @property
    def plan_note(self) -> str:
        return "exactly once: acknowledged with the checkpoint, and what comes again is known by its id"

    def open_enumerator(self, job: str, clock: Clock) -> FixedSplits:
        return FixedSplits([SplitState(path, {"count": 0, "ids": ""}) for path in self._paths()])

    def open_reader(self, context: ReaderContext) -> QueueReader:
        from onceflow.connectors.acknowledged.reader import QueueReader, QueueSettings
        from onceflow.connectors.pubsub.deliveries import PubSubDeliveries, Terms
        from onceflow.connectors.pubsub.subscription_calls import PubSubPlace

        settings = QueueSettings(
            self.is_bounded,
            duration_ms(self.remember, "remember"),
            duration_ms(self.timeout, "timeout"),
            duration_ms(self.lease, "lease"),
            "give a longer lease=",
        )
        terms = Terms(
            self.prefetch,
            duration_ms(self.ack_deadline, "ack_deadline") // 1000,
            None if self.until_quiet is None else duration_ms(self.until_quiet, "until_quiet"),
        )
        place = PubSubPlace(self.emulator_host, self.endpoint)
        connect = partial(PubSubDeliveries, place, terms=terms, context=context)
        return QueueReader(connect, self.rows(), self.read_beside(), settings, context)

    # --- Parts ---

    def beside(self) -> dict[str, pa.Field]:
        """See MessageSource."""
        known = named_fields(
            _TYPES,
            ("ordering_key",),
            id=self.id_column,
            publish_time=self.publish_time_column,
            ordering_key=self.ordering_key_column,
        )
        return known | attribute_fields(self.attribute_columns)

    def _paths(self) -> list[str]:
        return [
            each if _PATH.fullmatch(each) else f"projects/{self.project_id}/subscriptions/{each}"
            for each in self.subscriptions
        ]


def _check(source: PubSubSource) -> None:
    source.check_message_source("pubsub", "google.pubsub_v1", ("timeout",))
    source.check_names("subscriptions", "subscriptions")
    for name in source.subscriptions:
        if "/" in name and not _PATH.fullmatch(name):
            raise OptionError(
                f"PubSubSource: subscription {name!r}: give its name alone, or "
                '"projects/PROJECT/subscriptions/NAME"'
            )
        if "/" not in name and not source.project_id:
            raise OptionError(
                f"PubSubSource: subscription {name!r}: say of which project_id= it is, or give "
                '"projects/PROJECT/subscriptions/NAME"'
            )
    if not (isinstance(source.prefetch, int) and source.prefetch > 0):
        raise OptionError(f"PubSubSource: prefetch={source.prefetch!r}: give a number from 1 on")
    _check_times(source)


def _check_times(source: PubSubSource) -> None:
    deadline_ms = duration_ms(source.ack_deadline, "ack_deadline")
    if not _DEADLINE_MIN_MS <= deadline_ms <= _DEADLINE_MAX_MS:
        raise OptionError(
            f'PubSubSource: ack_deadline={source.ack_deadline!r}: give a time from "1 s" to "10 min"'
        )
    if duration_ms(source.remember, "remember") < 2 * deadline_ms:
        raise OptionError(
            f"PubSubSource: remember={source.remember!r} is too short for ack_deadline="
            f"{source.ack_deadline!r}: give twice as much, or more"
        )
    if duration_ms(source.lease, "lease") < max(_LEASE_MIN_MS, 2 * deadline_ms):
        raise OptionError(
            f"PubSubSource: lease={source.lease!r} is too short for checkpoints: give a minute or more, and "
            "two ack_deadlines or more"
        )
    if source.until_quiet is not None and duration_ms(source.until_quiet, "until_quiet") <= deadline_ms:
        raise OptionError(
            f"PubSubSource: until_quiet={source.until_quiet!r} is over before messages of an attempt that "
            f"died come again: give more than ack_deadline={source.ack_deadline!r}"
        )
