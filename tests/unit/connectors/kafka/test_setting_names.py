"""The settings of librdkafka that we know of are those that it has."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaException, Producer

from onceflow.connectors.kafka.options import REFUSED, KafkaOptions
from onceflow.connectors.kafka.setting_names import LIBRDKAFKA_SETTINGS, check_settings
from onceflow.runtime.errors import OptionError


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
