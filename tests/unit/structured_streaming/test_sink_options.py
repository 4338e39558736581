"""The sink's options at the door: what is asked for, what is refused and with which words."""

from __future__ import annotations

from typing import Any

import pytest

from onceflow.connectors.formats import Json
from onceflow.runtime.errors import OptionError
from onceflow.structured_streaming.sink_options import sink_options

STREAM = {"bootstrap_servers": "b:1", "topic": "t", "uid": "u", "checkpointLocation": "/c"}


def test_the_defaults() -> None:
    options = sink_options(STREAM, "writeStream")
    assert options.ledger("u").transactional_id == "onceflow.u"
    assert options.format is None
    assert (options.transaction_timeout_ms, options.delivery_timeout_ms) == (900_000, 120_000)
    assert options.kafka.bootstrap_servers == "b:1"


def test_names_are_taken_in_any_case_and_kafkas_pass_through() -> None:
    given = {
        "kafka.bootstrap.servers": "b:1",
        "TOPIC": "t",
        "UID": "u",
        "CheckPointLocation": "/c",
        "Format": "JSON",
        "delivery_timeout": "5000",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-256",
        "kafka.max.request.size": "2000000",
        "kafka.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="me" password="p\\"w";',
    }
    options = sink_options(given, "writeStream")
    assert isinstance(options.format, Json)
    assert options.delivery_timeout_ms == 5_000
    assert dict(options.kafka.librdkafka) == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-256",
        "message.max.bytes": "2000000",
        "sasl.username": "me",
        "sasl.password": 'p"w',
    }
    assert 'p"w' not in repr(options)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"topik": "t"}, r"no option 'topik' for writeStream \(did you mean 'topic'"),
        ({"startingOffsets": "latest"}, "'startingOffsets' has no meaning for writeStream"),
        ({"linger.ms": "5"}, r"given as kafka\.linger\.ms"),
        ({"uid": None}, r'needs \.option\("uid", NAME\)'),
        ({"uid": "a b"}, "uid 'a b' must be"),
        ({"checkpointLocation": None}, 'needs .option."checkpointLocation", FOLDER'),
        ({"bootstrap_servers": None}, 'needs .option."bootstrap_servers"'),
        ({"kafka.bootstrap.servers": "other:1"}, "say different things"),
        ({"format": "jsn"}, "format 'jsn' is not one of json, avro .did you mean 'json'"),
        ({"key": "user"}, "option 'key' .'user'. names a column"),
        ({"schema_registry": "http://r"}, 'needs .option."format", "avro"'),
        ({"max_rows_per_transaction": "5"}, "would make a batch visible in parts"),
        ({"ledger_topic": "t"}, "topic and ledger_topic are both 't'"),
        ({"transaction_timeout": "soon"}, "transaction_timeout"),
        ({"kafka.acks": "1"}, "'kafka.acks' can't be given"),
        ({"kafka.transactional.id": "x"}, "'kafka.transactional.id' can't be given.*give options uid and"),
        (
            {"kafka.security.protokol": "SSL"},
            "'kafka.security.protokol' .did you mean 'kafka.security.protocol'",
        ),
        ({"kafka.security.protocol": "TSL"}, "'kafka.security.protocol' can't be 'TSL': Invalid value"),
        ({"kafka.sasl.password": "geheim", "kafka.log_level": "geheim"}, r"can't be '\*\*\*'"),
        ({"kafka.buffer.memory": "1"}, r"give kafka\.queue\.buffering\.max\.kbytes"),
        ({"path": "/x"}, "writeStream of onceflow-kafka takes no path"),
        ({"groupidprefix": "x"}, "'groupIdPrefix' has no meaning for writeStream"),
        ({"deliverytimeout": "1 s"}, "did you mean 'delivery_timeout'"),
        ({"kafka.ssl.truststore.location": "x.jks"}, r"give kafka\.ssl\.ca\.location"),
        ({"kafka.sasl.jaas.config": "com.sun.Krb5LoginModule required;"}, r"give kafka\.sasl\.mechanism"),
    ],
)
def test_what_is_wrong_is_said(change: dict[str, Any], sentence: str) -> None:
    given = {name: value for name, value in {**STREAM, **change}.items() if value is not None}
    with pytest.raises(OptionError, match=sentence):
        sink_options(given, "writeStream")


def test_kafka_settings_that_say_what_is_so_anyway_are_taken() -> None:
    given = {"kafka.acks": "all", "kafka.enable.idempotence": "TRUE", "kafka.enable.auto.commit": "false"}
    assert not sink_options({**STREAM, **given}, "writeStream").kafka.librdkafka


def test_a_batch_needs_neither_uid_nor_checkpoint() -> None:
    assert sink_options({"bootstrap_servers": "b:1", "topic": "t"}, "write").uid is None


def test_another_target_is_checked_anew_and_no_secret_is_in_its_name() -> None:
    targets = {
        sink_options({**STREAM, **change}, "writeStream").target()
        for change in ({}, {"topic": "x"}, {"bootstrap_servers": "c:1"}, {"kafka.client.id": "z"})
    }
    assert len(targets) == 4
    one = sink_options({**STREAM, "kafka.sasl.password": "a"}, "writeStream").target()
    assert one == sink_options({**STREAM, "kafka.sasl.password": "b"}, "writeStream").target()
