"""BrokerAccess: how brokers are reached past librdkafka, by the settings that librdkafka was given.

A setting that changes how brokers are reached, or who may be trusted, and that is not honoured here leaves
all to librdkafka: a direct connection is never less strict than librdkafka's own.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onceflow.connectors.kafka.options import KafkaOptions
from onceflow.connectors.kafka.protocol.sasl_login import SaslLogin, login_of, mechanism_of
from onceflow.runtime.errors import OptionError
from onceflow.runtime.sockets.tls_socket import Connected, TlsSocket

_PROTOCOLS = frozenset({"plaintext", "ssl", "sasl_plaintext", "sasl_ssl"})
_CLIENT_ID = "rdkafka"  # librdkafka's default

HONOURED = frozenset(
    {
        "client.id",
        "enable.ssl.certificate.verification",
        "oauth_cb",
        "sasl.mechanism",
        "sasl.mechanisms",
        "sasl.oauthbearer.config",
        "sasl.password",
        "sasl.username",
        "security.protocol",
        "ssl.ca.location",
        "ssl.ca.pem",
        "ssl.certificate.location",
        "ssl.cipher.suites",
        "ssl.crl.location",
        "ssl.endpoint.identification.algorithm",
        "ssl.key.location",
        "ssl.key.password",
    }
)
"""The settings about reaching brokers that mean here what they mean to librdkafka."""


@dataclass(frozen=True, slots=True)
class BrokerAccess:
    """What every connection to a broker begins with."""

    client_id: str = _CLIENT_ID
    tls: ssl.SSLContext | None = None
    """None: nothing is encrypted."""
    login: SaslLogin | None = None
    """None: the broker is not told who this is, unless by a TLS certificate."""

    def connect(self, host: str, port: int, timeout_s: float) -> Connected:
        """A connection, with TLS if it is asked for and the broker's certificate is good. Raises OSError."""
        opened = socket.create_connection((host, port), timeout_s)
        try:
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self.tls is None:
                return opened
            return TlsSocket(self.tls.wrap_socket(opened, server_hostname=host))
        except BaseException:
            opened.close()
            raise


def access_of(settings: Mapping[str, Any]) -> BrokerAccess | None:
    """How brokers are reached by these settings of librdkafka. None: only librdkafka can reach them so."""
    if not may_access(settings):
        return None
    protocol = str(settings.get("security.protocol", "plaintext")).lower()
    client_id = str(settings.get("client.id", _CLIENT_ID))
    try:
        tls = _context(settings) if protocol.endswith("ssl") else None
    except (OSError, ValueError):  # librdkafka has something to say of these files, too
        return None
    return BrokerAccess(client_id, tls, login_of(settings) if protocol.startswith("sasl") else None)


def kafka_python(options: KafkaOptions) -> dict[str, Any]:
    """The same way to the brokers for kafka-python's clients. Raises OptionError for a certificate or key
    that can't be read, and for a login that only librdkafka can do."""
    settings = options.librdkafka
    protocol = str(settings.get("security.protocol", "plaintext")).upper()
    out: dict[str, Any] = {
        "bootstrap_servers": options.bootstrap_servers.split(","),
        "client_id": str(settings.get("client.id", _CLIENT_ID)),
        "security_protocol": protocol,
    }
    if protocol.endswith("SSL"):
        try:
            out["ssl_context"] = _context(settings)
        except (OSError, ValueError) as error:
            why = options.redact(str(error))
            raise OptionError(f"the files that the settings ssl.* name can't be used: {why}") from error
    if protocol.startswith("SASL"):
        out |= _kafka_python_login(settings)
    return out


def _kafka_python_login(settings: Mapping[str, Any]) -> dict[str, Any]:
    login, mechanism = login_of(settings), mechanism_of(settings)
    if login is None and mechanism != "GSSAPI":
        raise OptionError(
            f"a login by {mechanism} with these sasl.* settings is not possible here: kafka-python, which "
            "looks at transactions, needs sasl.username (without ',' and '=') and sasl.password, or oauth_cb"
        )
    return {**(login.for_kafka_python() if login else {}), "sasl_mechanism": mechanism}


def may_access(settings: Mapping[str, Any]) -> bool:
    """Whether all that these settings say about reaching brokers can be honoured. Opens no file."""
    protocol = str(settings.get("security.protocol", "plaintext")).lower()
    if protocol not in _PROTOCOLS:
        return False
    if any(name.startswith(("ssl.", "sasl.")) and name not in HONOURED for name in settings):
        return protocol == "plaintext"
    return not protocol.startswith("sasl") or login_of(settings) is not None


def _context(settings: Mapping[str, Any]) -> ssl.SSLContext:
    """Certificates are checked as librdkafka checks them: against the given authorities, else the system's;
    the host's name too, unless that is switched off."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if str(settings.get("ssl.endpoint.identification.algorithm", "https")).lower() == "none":
        context.check_hostname = False
    if not _is_true(settings.get("enable.ssl.certificate.verification", True)):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    _trust(context, settings)
    if crl := settings.get("ssl.crl.location"):
        context.load_verify_locations(str(crl))
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    if suites := settings.get("ssl.cipher.suites"):
        context.set_ciphers(str(suites))
    if certificate := settings.get("ssl.certificate.location"):
        key = settings.get("ssl.key.location")
        password = str(settings.get("ssl.key.password", ""))  # without any, OpenSSL would ask the terminal
        context.load_cert_chain(str(certificate), str(key) if key else None, password)
    return context


def _trust(context: ssl.SSLContext, settings: Mapping[str, Any]) -> None:
    location, pem = settings.get("ssl.ca.location"), settings.get("ssl.ca.pem")
    if pem:
        context.load_verify_locations(cadata=str(pem))
    elif location and str(location) != "probe":
        is_folder = Path(str(location)).is_dir()
        context.load_verify_locations(**{"capath" if is_folder else "cafile": str(location)})
    else:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)


def _is_true(value: object) -> bool:
    return str(value).lower() not in {"false", "0", "f"}
