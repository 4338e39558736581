"""Listeners of the embedded broker as production has them: TLS with our own certificate, and passwords."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

USER, PASSWORD = "writer", "pass-4711"
_MODULE = "org.apache.kafka.common.security"
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


def write_certificate(folder: Path) -> None:
    """A self-signed ca.pem for 127.0.0.1 and the broker's keystore.pem."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "onceflow benchmark")])
    now = datetime.datetime.now(datetime.UTC)
    day = datetime.timedelta(days=1)
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    certificate = (
        x509.CertificateBuilder(
            name, name, key.public_key(), x509.random_serial_number(), now - day, now + day
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(address, critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "ca.pem").write_bytes(pem)
    (folder / "keystore.pem").write_bytes(private + pem)


def broker_options(folder: Path) -> dict[str, Any]:
    """For EmbeddedKafka: a listener of each protocol, under its own name. `folder`: of write_certificate."""
    properties = {
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(folder / "keystore.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(folder / "ca.pem"),
    }
    for listener in ("sasl_plaintext", "sasl_ssl"):
        plain = f'{_MODULE}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
        properties[f"listener.name.{listener}.plain.sasl.jaas.config"] = plain
        for mechanism in ("scram-sha-256", "scram-sha-512"):
            scram = f"{_MODULE}.scram.ScramLoginModule required;"
            properties[f"listener.name.{listener}.{mechanism}.sasl.jaas.config"] = scram
    known = f"[name={USER},password={PASSWORD}]"
    formats = [f"--add-scram=SCRAM-SHA-256={known}", f"--add-scram=SCRAM-SHA-512={known}"]
    return {
        "extra_listeners": {name: name for name in PROTOCOLS[1:]},
        "format_arguments": tuple(part for each in formats for part in each.split("=", 1)),
        "properties": properties,
    }


def java_settings(security: Mapping[str, str]) -> dict[str, str]:
    """The settings of Java's clients for the same listener as these of librdkafka's."""
    settings = {"security.protocol": security["security.protocol"]}
    if "ssl.ca.location" in security:
        settings |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": security["ssl.ca.location"]}
    if "sasl.mechanism" in security:
        mechanism = security["sasl.mechanism"]
        module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
        login = f'username="{security["sasl.username"]}" password="{security["sasl.password"]}"'
        settings |= {
            "sasl.mechanism": mechanism,
            "sasl.jaas.config": f"{_MODULE}.{module} required {login};",
        }
    return settings


def client_settings(folder: Path, protocol: str, mechanism: str = "SCRAM-SHA-512") -> dict[str, str]:
    """librdkafka's settings for a listener."""
    settings = {"security.protocol": protocol}
    if protocol.endswith("SSL"):
        settings["ssl.ca.location"] = str(folder / "ca.pem")
    if protocol.startswith("SASL"):
        settings |= {"sasl.mechanism": mechanism, "sasl.username": USER, "sasl.password": PASSWORD}
    return settings
