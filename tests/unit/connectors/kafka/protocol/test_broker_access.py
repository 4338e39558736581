"""How brokers are reached past librdkafka: never less strictly than librdkafka would."""

from __future__ import annotations

import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.secured import write_certificate
from onceflow.connectors.kafka.options import KafkaOptions
from onceflow.connectors.kafka.protocol.broker_access import HONOURED, access_of, kafka_python, may_access
from onceflow.connectors.kafka.setting_names import LIBRDKAFKA_SETTINGS
from onceflow.runtime.errors import OptionError

PASSWORD = {"sasl.mechanism": "SCRAM-SHA-256", "sasl.username": "me", "sasl.password": "secret-4711"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_certificate(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("settings", "may"),
    [
        ({}, True),
        ({"security.protocol": "SSL"}, True),
        ({"security.protocol": "sasl_ssl", **PASSWORD}, True),
        ({"security.protocol": "SASL_PLAINTEXT", **PASSWORD, "sasl.mechanism": "PLAIN"}, True),
        ({"security.protocol": "SASL_SSL", "sasl.mechanisms": "OAUTHBEARER", "oauth_cb": print}, True),
        ({"security.protocol": "SASL_SSL", "sasl.mechanisms": "OAUTHBEARER"}, False),
        ({"security.protocol": "SASL_SSL"}, False),  # Kerberos, if nothing is said
        ({"security.protocol": "SASL_SSL", **PASSWORD, "sasl.username": "a=b"}, False),  # to be escaped
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "me"}, False),
        ({"security.protocol": "SSL", "ssl.keystore.location": "p12"}, False),
        ({"security.protocol": "SSL", "ssl.certificate.pem": "pem"}, False),
        ({"security.protocol": "SSL", "ssl.sigalgs.list": "RSA"}, False),
        ({"security.protocol": "quic"}, False),
        ({"ssl.keystore.location": "p12"}, True),  # of no meaning without TLS
    ],
)
def test_what_can_not_be_honoured_is_left_to_librdkafka(settings: dict[str, Any], may: bool) -> None:
    assert may_access(settings) is may
    assert (access_of(settings) is not None) is may


def test_each_of_librdkafkas_settings_of_tls_and_sasl_is_honoured_or_refused() -> None:
    for name in LIBRDKAFKA_SETTINGS:
        if name.startswith(("ssl.", "sasl.")) and name not in HONOURED:
            assert not may_access({"security.protocol": "SASL_SSL", **PASSWORD, name: "x"}), name


def context(folder: Path, **more: Any) -> ssl.SSLContext:
    named = {name.replace("__", "."): value for name, value in more.items()}
    access = access_of({"security.protocol": "SSL", "ssl.ca.location": str(folder / "ca.pem"), **named})
    assert access is not None
    assert access.tls is not None
    return access.tls


def test_certificate_and_host_are_checked_against_the_given_authority(folder: Path) -> None:
    tls = context(folder)
    assert (tls.verify_mode, tls.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert [one["subject"] for one in tls.get_ca_certs()] == [((("commonName", "onceflow benchmark"),),)]


def test_an_authority_in_the_settings_themselves_counts_too(folder: Path) -> None:
    pem = (folder / "ca.pem").read_text()
    access = access_of({"security.protocol": "SSL", "ssl.ca.pem": pem})
    assert access is not None
    assert access.tls is not None
    assert len(access.tls.get_ca_certs()) == 1


@pytest.mark.parametrize("off", ["false", False, 0])
def test_checks_are_off_only_where_the_user_switches_them_off(folder: Path, off: Any) -> None:
    unnamed = context(folder, ssl__endpoint__identification__algorithm="none")
    assert (unnamed.verify_mode, unnamed.check_hostname) == (ssl.CERT_REQUIRED, False)
    unchecked = context(folder, enable__ssl__certificate__verification=off)
    assert (unchecked.verify_mode, unchecked.check_hostname) == (ssl.CERT_NONE, False)
    assert context(folder, enable__ssl__certificate__verification="true").verify_mode == ssl.CERT_REQUIRED


def test_files_that_are_not_there_are_for_librdkafka_to_name(folder: Path) -> None:
    assert access_of({"security.protocol": "SSL", "ssl.ca.location": str(folder / "none.pem")}) is None
    key = {"ssl.certificate.location": str(folder / "ca.pem"), "ssl.key.location": str(folder / "none")}
    assert access_of({"security.protocol": "SSL", **key}) is None


def test_a_certificate_of_the_client_is_given(folder: Path) -> None:
    both = str(folder / "keystore.pem")
    access = access_of(
        {"security.protocol": "SSL", "ssl.certificate.location": both, "ssl.key.location": both}
    )
    assert access is not None


def test_no_text_of_it_shows_the_password() -> None:
    assert "secret-4711" not in repr(access_of({"security.protocol": "SASL_SSL", **PASSWORD}))


def test_kafka_pythons_clients_go_the_same_way(folder: Path) -> None:
    """A client of kafka-python checks certificates as the others do, and takes either name of a mechanism."""
    secret = {"security.protocol": "sasl_ssl", **PASSWORD, "linger.ms": 1}
    given = kafka_python(KafkaOptions("a:1,b:2", {**secret, "ssl.ca.location": str(folder / "ca.pem")}))
    tls = given.pop("ssl_context")
    assert (tls.verify_mode, tls.check_hostname, len(tls.get_ca_certs())) == (ssl.CERT_REQUIRED, True, 1)
    assert given == {
        "bootstrap_servers": ["a:1", "b:2"],
        "client_id": "rdkafka",
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-256",
        "sasl_plain_username": "me",
        "sasl_plain_password": "secret-4711",
    }
    assert kafka_python(KafkaOptions("a:1")) == {
        "bootstrap_servers": ["a:1"],
        "client_id": "rdkafka",
        "security_protocol": "PLAINTEXT",
    }
    with pytest.raises(OptionError, match=r"login by SCRAM-SHA-256 .* is not possible here"):
        kafka_python(KafkaOptions("a:1", {**secret, "security.protocol": "SASL_SSL", "sasl.username": "a=b"}))
    named = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "GSSAPI"}
    kerberos = kafka_python(KafkaOptions("a:1", named))
    assert kerberos["sasl_mechanism"] == "GSSAPI"


def test_a_certificate_that_is_not_there_is_a_wrong_option(folder: Path) -> None:
    wrong = {"security.protocol": "SSL", "ssl.ca.location": str(folder / "none.pem")}
    with pytest.raises(OptionError, match=r"ssl\.\* name can't be used: .*No such file"):
        kafka_python(KafkaOptions("a:1", wrong))


TOKEN = """
from onceflow.connectors.kafka.options import KafkaOptions
from onceflow.connectors.kafka.protocol.broker_access import kafka_python
settings = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
settings["oauth_cb"] = lambda config: ("t", 0)
given = kafka_python(KafkaOptions("a:1", settings))
from kafka.net.sasl.oauth import SaslMechanismOAuth
assert SaslMechanismOAuth(**given).auth_bytes()
"""


def test_the_first_client_of_a_process_is_believed_its_token() -> None:
    """Only a process that had logged in by a direct route before was: `onceflow transactions` never has."""
    subprocess.run([sys.executable, "-c", TOKEN], check=True, timeout=240)
