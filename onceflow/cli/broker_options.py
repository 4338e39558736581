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
    """How to speak with the cluster. `librdkafka`: see file_settings. Raises UsageError or OptionError naming
    the setting that is none."""
    options = KafkaOptions(bootstrap_servers, file_settings(librdkafka))
    check_settings(options)
    return options


def file_settings(librdkafka: Path | None) -> dict[str, Any]:
    """The settings in a file, so that passwords are not on the command line; lines that begin with # are
    comments. Raises UsageError for a file that can't be read, and for a line that is no setting."""
    if librdkafka is None:
        return {}
    try:
        lines = librdkafka.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise UsageError(f"--librdkafka {librdkafka} can't be read: {error.strerror}") from None
    settings: dict[str, Any] = {}
    for line in lines:
        name, sign, value = line.strip().partition("=")
        if name and not name.startswith("#"):
            if not sign:
                raise UsageError(f"{librdkafka}: {name!r} is no name=value")
            settings[name.strip()] = value.strip()
    return settings


def name_value_pairs(pairs: list[str], option: str) -> dict[str, str]:
    """What a repeatable NAME=VALUE option was given. Raises UsageError for one without a value."""
    split = [pair.partition("=") for pair in pairs]
    for name, sign, _ in split:
        if not sign or not name.strip():
            raise UsageError(f"{option} {name} has no value: write it as {option} NAME=VALUE")
    return {name.strip(): value for name, _, value in split}
