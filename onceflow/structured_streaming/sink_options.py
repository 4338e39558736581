"""What the user asked of writeStream and write, checked at the door."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onceflow.connectors.kafka.client import LedgerKey
from onceflow.connectors.kafka.options import KafkaOptions
from onceflow.connectors.kafka.transactions.sink_topics import LEDGER_TOPIC
from onceflow.runtime.durations import duration_ms
from onceflow.runtime.errors import OptionError
from onceflow.runtime.nearest import nearest
from onceflow.structured_streaming.options import WRITE, parse_options

if TYPE_CHECKING:
    from onceflow.connectors.formats import Format

FORMATS = ("json", "avro")
_UID = re.compile(r"[A-Za-z0-9._-]{1,100}")
_IN_PARTS = {
    "partial_transactions",
    "rows_per_transaction",
    "max_rows_per_transaction",
    "transactions_per_batch",
}
_PREFIX = "onceflow"
_TRANSACTION_TIMEOUT = "15 min"
_DELIVERY_TIMEOUT = "2 min"


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Picklable: it travels to the tasks, which use `topic`, `format` and `key` of it."""

    kafka: KafkaOptions
    topic: str | None
    """The topic of all rows; None: they have a column `topic`."""
    uid: str | None
    checkpoint: str | None
    staging: str | None
    format: Format | None
    """How rows are encoded; None: they have a column `value`, and maybe `key`, `headers`, `topic` and
    `partition`."""
    key: str | None
    ledger_topic: str
    transactional_id_prefix: str
    transaction_timeout_ms: int
    delivery_timeout_ms: int

    def ledger(self, owner: str) -> LedgerKey:
        """Where the ledger of this owner (a uid, or a write's own name) is."""
        return LedgerKey(f"{self.transactional_id_prefix}.{owner}", self.ledger_topic)

    def target(self) -> str:
        """A short name for where rows go and as whom: another one has to be checked anew."""
        asked = [self.kafka.bootstrap_servers, self.topic, self.kafka.shown(), self.transaction_timeout_ms]
        return hashlib.sha256(json.dumps(asked, default=str).encode()).hexdigest()[:16]


def sink_options(options: Mapping[str, str], door: str) -> SinkOptions:
    """`door`: "writeStream" or "write". Raises OptionError."""
    for given in options:
        if given.lower() in _IN_PARTS:
            raise OptionError(
                f"option {given!r} is refused: several transactions would make a batch visible in parts, and "
                "a kill between two of them would double one. Smaller batches are made at the source "
                "(maxOffsetsPerTrigger)"
            )
    parsed = parse_options(options, WRITE, door)
    ours, is_stream = parsed.ours, door == "writeStream"
    uid = ours.get("uid")
    if uid is None and is_stream:
        raise OptionError(
            'writeStream of onceflow-kafka needs .option("uid", NAME): a name of your own for this output, '
            "which stays the same forever; the broker remembers under it what is written"
        )
    if uid is not None and not _UID.fullmatch(uid):
        raise OptionError(f"uid {uid!r} must be 1 to 100 letters, digits, '.', '_' or '-'")
    if is_stream and not ours.get("checkpointLocation"):
        raise OptionError(
            'writeStream of onceflow-kafka needs .option("checkpointLocation", FOLDER) on the query itself: '
            "what is written is tied to it"
        )
    ledger_topic = ours.get("ledger_topic", LEDGER_TOPIC)
    if ours.get("topic") == ledger_topic:
        raise OptionError(f"topic and ledger_topic are both {ledger_topic!r}: the ledger needs its own")
    chosen = _format(ours)
    if "key" in ours and chosen is None:
        raise OptionError(
            f"option 'key' ({ours['key']!r}) names a column of rows that are written with a format: give "
            '.option("format", "json") too, or call the column `key`'
        )
    return SinkOptions(
        kafka=parsed.kafka,
        topic=ours.get("topic"),
        uid=uid,
        checkpoint=ours.get("checkpointLocation"),
        staging=ours.get("staging"),
        format=chosen,
        key=ours.get("key"),
        ledger_topic=ledger_topic,
        transactional_id_prefix=ours.get("transactional_id_prefix", _PREFIX),
        transaction_timeout_ms=_duration(ours, "transaction_timeout", _TRANSACTION_TIMEOUT),
        delivery_timeout_ms=_duration(ours, "delivery_timeout", _DELIVERY_TIMEOUT),
    )


def _duration(ours: Mapping[str, str], name: str, default: str) -> int:
    given = ours.get(name, default)
    return duration_ms(int(given) if given.strip().isdigit() else given, name)


def _format(ours: Mapping[str, str]) -> Format | None:
    name = ours.get("format")
    for option in ("avro_schema", "schema_registry"):
        if option in ours and (name or "").lower() != "avro":
            raise OptionError(f'option {option!r} needs .option("format", "avro")')
    if name is None:
        return None
    # Only for who needs it: it imports polars and more, half a second in each process that plans or commits.
    from onceflow.connectors.formats import Avro, Json, for_topic

    if name.lower() == "json":
        return Json()
    if name.lower() == "avro":
        registry = ours.get("schema_registry")
        avro = Avro(
            ours.get("avro_schema"), registry=registry, framing="none" if registry is None else "confluent"
        )
        return avro if "topic" not in ours else for_topic(avro, ours["topic"], "value")
    raise OptionError(f"format {name!r} is not one of {', '.join(FORMATS)}{nearest(name, FORMATS)}")
