"""What the commands that speak with a Kafka cluster have in common: which one, and how it is spoken with."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from onceflow.connectors.kafka.options import KafkaOptions
from onceflow.connectors.kafka.setting_names import check_settings
from onceflow.runtime.errors import UsageError

LOCAL = "127.0.0.1:9092"
"""Where `onceflow broker start` puts a broker that was given no port."""

LocalServers = Annotated[
    str,
    typer.Option("--bootstrap-servers", envvar="ONCEFLOW_BOOTSTRAP_SERVERS", help="The brokers."),
]
Config = Annotated[
    Path | None, typer.Option("--librdkafka", help="A file of librdkafka settings, one name=value a line.")
]


def kafka_options(bootstrap_servers: str, librdkafka: Path | None) -> KafkaOptions:
    """How to speak with the cluster. `librdkafka`: a file of its settings, with lines that begin with # as
    comments. Raises UsageError or OptionError naming the setting that is none."""
    settings: dict[str, Any] = {}
    for line in librdkafka.read_text().splitlines() if librdkafka else ():
        name, sign, value = line.strip().partition("=")
        if name and not name.startswith("#"):
            if not sign:
                raise UsageError(f"{librdkafka}: {name!r} is no name=value")
            settings[name.strip()] = value.strip()
    options = KafkaOptions(bootstrap_servers, settings)
    check_settings(options)
    return options


def name_value_pairs(pairs: list[str], option: str) -> dict[str, str]:
    """What a repeatable NAME=VALUE option was given. Raises UsageError for one without a value."""
    split = [pair.partition("=") for pair in pairs]
    for name, sign, _ in split:
        if not sign or not name.strip():
            raise UsageError(f"{option} {name} has no value: write it as {option} NAME=VALUE")
    return {name.strip(): value for name, _, value in split}
