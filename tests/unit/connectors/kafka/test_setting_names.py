"""The settings of librdkafka that we know of are those that it has."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer
from typer.testing import CliRunner

from onceflow.cli.app import app
from onceflow.connectors.formats import Raw
from onceflow.connectors.kafka.options import REFUSED, KafkaOptions, Setting
from onceflow.connectors.kafka.setting_names import LIBRDKAFKA_SETTINGS, check_settings
from onceflow.connectors.kafka.source.source import KafkaSource
from onceflow.runtime.errors import OptionError
from onceflow.sinks.kafka import KafkaSink


@pytest.mark.parametrize("name", sorted(LIBRDKAFKA_SETTINGS))
def test_librdkafka_has_each(name: str) -> None:
    with pytest.raises(KafkaException) as error:
        Producer({name: "\0", "not.there": ""})
    assert (
        f'property: "{name}"' not in error.value.args[0].str() or "No such" not in error.value.args[0].str()
    )


def test_none_of_them_is_refused_elsewhere() -> None:
    assert not LIBRDKAFKA_SETTINGS & REFUSED.keys()


def test_good_ones_pass_and_what_is_wrong_is_said() -> None:
    check_settings(
        KafkaOptions("b:1", {"linger.ms": 5, "socket.keepalive.enable": True, "sasl.mechanism": "PLAIN"})
    )
    with pytest.raises(OptionError, match=r"no setting 'linger.m' .did you mean 'linger.ms'"):
        check_settings(KafkaOptions("b:1", {"linger.m": 5}))
    with pytest.raises(OptionError, match=r"setting 'k.linger.ms' can't be 'soon'"):
        check_settings(KafkaOptions("b:1", {"linger.ms": "soon"}), "k.")


def a_source(settings: dict[str, Setting]) -> object:
    return KafkaSource(bootstrap_servers="b:1", topics="t", value=Raw(), librdkafka=settings)


def a_sink(settings: dict[str, Setting]) -> object:
    return KafkaSink(bootstrap_servers="b:1", topic="t", librdkafka=settings)


@pytest.mark.parametrize("made", [a_source, a_sink])
def test_sources_and_sinks_refuse_them_when_they_are_made(
    made: Callable[[dict[str, Setting]], object],
) -> None:
    made({"socket.keepalive.enable": True})
    with pytest.raises(OptionError, match=r"no setting 'linger.m' .did you mean 'linger.ms'"):
        made({"linger.m": 5})


def test_the_command_line_refuses_them_in_its_file(tmp_path: Path) -> None:
    settings = tmp_path / "client.properties"
    settings.write_text("sasl.user=me\n")
    given = ["transactions", "list", "--bootstrap-servers", "b:1", "--librdkafka", str(settings)]
    result = CliRunner().invoke(app, given)
    assert result.exit_code == 2
    assert "no setting 'sasl.user' (did you mean 'sasl.username'" in result.stderr
