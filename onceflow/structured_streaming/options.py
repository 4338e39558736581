"""The options of "onceflow-kafka": their names, what passes through to Kafka, and what is refused.

Options are ours, with names as Spark's Kafka source has them where it has them, and `kafka.*`, which goes
to librdkafka by its own name. As everywhere in Spark, case does not matter in ours.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from onceflow.connectors.kafka.options import KafkaOptions, Setting
from onceflow.runtime.errors import OptionError
from onceflow.runtime.types import nearest

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
    "interceptor.classes": "librdkafka runs no Java classes; leave it out",
    "sasl.login.callback.handler.class": "librdkafka runs no Java classes; see kafka.sasl.oauthbearer.*",
    "sasl.client.callback.handler.class": "librdkafka runs no Java classes; see kafka.sasl.oauthbearer.*",
}
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
            raise OptionError(f"option {given!r} has no meaning for {door} of onceflow-kafka: leave it out")
        else:
            raise OptionError(_unknown(given, door, here))
    if "bootstrap_servers" not in ours:
        raise OptionError(f'{door} of onceflow-kafka needs .option("bootstrap_servers", "host:9092")')
    return SourceOrSinkOptions(ours, KafkaOptions(ours["bootstrap_servers"], librdkafka))


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
