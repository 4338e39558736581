"""The options of "onceflow-kafka": their names, what passes through to Kafka, and what is refused.

Options are ours, with names as Spark's Kafka source has them where it has them, and `kafka.*`, which goes
to librdkafka by its own name. As everywhere in Spark, case does not matter in ours.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from onceflow.connectors.kafka.options import REFUSED, KafkaOptions, Setting
from onceflow.connectors.kafka.setting_names import check_settings
from onceflow.runtime.errors import OptionError
from onceflow.runtime.nearest import nearest

SHARED = ("bootstrap_servers", "format", "avro_schema", "schema_registry")
READ = (
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "endingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "failOnDataLoss",
    "includeHeaders",
    "groupIdPrefix",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "kafkaConsumer.pollTimeoutMs",
)
WRITE = (
    "topic",
    "uid",
    "staging",
    "key",
    "ledger_topic",
    "transactional_id_prefix",
    "transaction_timeout",
    "delivery_timeout",
)
OF_SPARK = ("checkpointLocation", "queryName")
"""Options of the query that Spark passes on to us, too."""

_BOOTSTRAP = "kafka.bootstrap.servers"
_KAFKA = "kafka."
_JAVA_NAMES = {
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "max.request.size": "message.max.bytes",
    "compression.type": "compression.codec",
}
"""Settings of Java's clients that have another name in librdkafka, and the same values."""

_JAVA_ONLY = {
    "ssl.truststore.location": "give kafka.ssl.ca.location, a PEM file with the certificates",
    "ssl.truststore.password": "give kafka.ssl.ca.location, a PEM file, which needs none",
    "ssl.truststore.type": "give kafka.ssl.ca.location, a PEM file",
    "ssl.truststore.certificates": "give kafka.ssl.ca.pem",
    "key.serializer": "give option format",
    "value.serializer": "give option format",
    "key.deserializer": "give option format",
    "value.deserializer": "give option format",
    "max.poll.records": "give option maxOffsetsPerTrigger",
    "buffer.memory": "give kafka.queue.buffering.max.kbytes",
    "default.api.timeout.ms": "give option broker_timeout to read, delivery_timeout to write",
    "max.block.ms": "give option delivery_timeout",
    "partitioner.class": "rows go where Java's producers put them, or where column `partition` says",
    "ssl.keystore.type": "give kafka.ssl.keystore.location, a PKCS#12 file, or kafka.ssl.key.location, PEM",
    "interceptor.classes": "librdkafka runs no Java classes; leave it out",
    "sasl.login.callback.handler.class": "librdkafka runs no Java classes; see kafka.sasl.oauthbearer.*",
    "sasl.client.callback.handler.class": "librdkafka runs no Java classes; see kafka.sasl.oauthbearer.*",
}
_AGREES = {
    "acks": ("all", "-1"),
    "check.crcs": ("true",),
    "enable.auto.commit": ("false",),
    "enable.idempotence": ("true",),
}
"""Settings that can't be given, but for the values that they have anyway: pipelines bring them along."""

_ADVICE = {
    "auto.commit.interval.ms": "leave it out",
    "auto.offset.reset": "give option startingOffsets",
    "delivery.timeout.ms": "give option delivery_timeout",
    "group.id": "leave it out",
    "isolation.level": "leave it out",
    "message.send.max.retries": "give option delivery_timeout",
    "message.timeout.ms": "give option transaction_timeout",
    "partitioner": "give rows a column `partition`",
    "retries": "give option delivery_timeout",
    "transaction.timeout.ms": "give option transaction_timeout",
    "transactional.id": "give options uid and transactional_id_prefix",
}
"""What to do instead of a setting that can't be given, where that differs from REFUSED's words."""

_OFFSETS = "the offsets are in Spark's checkpoint, so that they and what was written can't differ"
_JAAS = re.compile(
    r"\s*[\w.]+\.(?:PlainLoginModule|ScramLoginModule)\s+\w+\s+(?P<settings>[^;]*);\s*", re.DOTALL
)
_JAAS_SETTING = re.compile(r"(\w+)\s*=\s*(?:\"((?:[^\"\\]|\\.)*)\"|'((?:[^'\\]|\\.)*)')")


@dataclass(frozen=True, slots=True)
class SourceOrSinkOptions:
    """What the user gave: ours by their proper names, and the connection."""

    ours: Mapping[str, str]
    kafka: KafkaOptions


def parse_options(options: Mapping[str, str], known: Iterable[str], door: str) -> SourceOrSinkOptions:
    """Sort them. `known`: names of ours that are taken here, besides SHARED and OF_SPARK; `door`: how
    messages call this use, such as "writeStream".

    Raises OptionError for a name that is not known, with the nearest one, and for a Kafka setting that
    a guarantee rests on (connectors.kafka.options.REFUSED).
    """
    here = {name.lower(): name for name in (*SHARED, *known, *OF_SPARK)}
    elsewhere = {name.lower(): name for name in (*READ, *WRITE)}
    ours: dict[str, str] = {}
    librdkafka: dict[str, Setting] = {}
    for given, value in options.items():
        lower = given.lower()
        if lower == _BOOTSTRAP:
            _set_once(ours, "bootstrap_servers", value, given)
        elif lower.startswith(_KAFKA):
            librdkafka.update(_kafka_setting(lower.removeprefix(_KAFKA), value))
        elif lower in here:
            _set_once(ours, here[lower], value, given)
        elif lower in elsewhere:
            name = elsewhere[lower]
            raise OptionError(f"option {name!r} has no meaning for {door} of onceflow-kafka: leave it out")
        elif lower == "path":
            raise OptionError(f"{door} of onceflow-kafka takes no path ({value!r}): options name the topic")
        else:
            raise OptionError(_unknown(given, door, here))
    if "bootstrap_servers" not in ours:
        raise OptionError(f'{door} of onceflow-kafka needs .option("bootstrap_servers", "host:9092")')
    kafka = KafkaOptions(ours["bootstrap_servers"], librdkafka)
    check_settings(kafka, _KAFKA)
    return SourceOrSinkOptions(ours, kafka)


def _unknown(given: str, door: str, here: Mapping[str, str]) -> str:
    hint = nearest(given, [*here.values(), _BOOTSTRAP])
    own = f"; a setting of Kafka's clients is given as kafka.{given}" if "." in given and not hint else ""
    return f"onceflow-kafka has no option {given!r} for {door}{hint}{own}"


def _set_once(ours: dict[str, str], name: str, value: str, given: str) -> None:
    if ours.setdefault(name, value) != value:
        raise OptionError(f"options {given!r} and {name!r} say different things: give one of them")


def _kafka_setting(name: str, value: str) -> dict[str, Setting]:
    if name == "sasl.jaas.config":
        return _from_jaas(value)
    if name in _JAVA_ONLY:
        raise OptionError(
            f"option 'kafka.{name}' is one of Java's clients, and onceflow uses librdkafka: "
            f"{_JAVA_ONLY[name]}"
        )
    if value.strip().lower() in _AGREES.get(name, ()):
        return {}
    if name in REFUSED:
        reason, advice = REFUSED[name]
        reason = _OFFSETS if "in its checkpoints" in reason else reason
        raise OptionError(f"option 'kafka.{name}' can't be given: {reason}; {_ADVICE.get(name, advice)}")
    return {_JAVA_NAMES.get(name, name): value}


def _from_jaas(value: str) -> dict[str, Setting]:
    """User and password of a login module, for those who bring their settings from Java."""
    match = _JAAS.fullmatch(value)
    found = {}
    if match is not None:
        for name, double, single in _JAAS_SETTING.findall(match["settings"]):
            found[name] = re.sub(r"\\(.)", r"\1", double or single)
    if not {"username", "password"} <= found.keys():
        raise OptionError(
            "option 'kafka.sasl.jaas.config' is understood for PlainLoginModule and ScramLoginModule with "
            "username and password only: give kafka.sasl.mechanism, kafka.sasl.username and "
            "kafka.sasl.password"
        )
    return {"sasl.username": found["username"], "sasl.password": found["password"]}
