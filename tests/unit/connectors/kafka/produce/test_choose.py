"""When records are written to brokers directly, and when by librdkafka."""

from __future__ import annotations

from typing import Any

import pytest

from onceflow.connectors.kafka.client import LedgerKey
from onceflow.connectors.kafka.options import KafkaOptions
from onceflow.connectors.kafka.produce.batch_limit import BatchLimit
from onceflow.connectors.kafka.produce.choose import DirectChoice
from onceflow.connectors.kafka.transactions.producer_settings import DIRECT_VARIABLE, best_route
from onceflow.runtime.kernels.ops import PLAIN, ops, using

needs_kernels = pytest.mark.skipif(not ops().are_compiled, reason="needs numba")


def is_direct(**settings: Any) -> bool:
    options = KafkaOptions(
        "127.0.0.1:1", {name if callable(v) else name.replace("_", "."): v for name, v in settings.items()}
    )
    return DirectChoice(options, BatchLimit(1_000), 1.0, 10.0).is_possible


@needs_kernels
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"security_protocol": "PLAINTEXT", "client_id": "mine", "client_rack": "a"},
        {"compression_type": "zstd", "compression_level": 3, "batch_size": 50_000, "linger_ms": 5},
        {"compression_codec": "gzip", "message_max_bytes": 10_000, "queue_buffering_max_messages": 10},
        {"fetch_wait_max_ms": 10, "session_timeout_ms": 6_000},  # for readers only
        {"security_protocol": "SSL", "enable_ssl_certificate_verification": False},
        {"sasl_mechanism": "PLAIN"},  # says nothing without a protocol with SASL
        {
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": "SCRAM-SHA-512",
            "sasl_username": "me",
            "sasl_password": "secret",
        },
    ],
    ids=str,
)
def test_what_makes_no_difference_is_written_directly(settings: dict[str, Any]) -> None:
    assert is_direct(**settings)


@pytest.mark.parametrize(
    "settings",
    [
        {"throttle_cb": print},
        {"resolve_cb": print},
        {"plugin_library_paths": "interceptor"},
        {"security_protocol": "SSL", "ssl_keystore_location": "keys.p12"},
        {"security_protocol": "SASL_SSL", "sasl_mechanism": "GSSAPI"},
        {"compression_type": "lz4"},
        {"compression_type": "gzip", "compression_codec": "none"},
        {"batch_num_messages": 10},
        {"request_timeout_ms": 1_000},
        {"broker_address_family": "v6"},
        {"socket_keepalive_enable": True},
        {"client_dns_lookup": "resolve_canonical_bootstrap_servers_only"},
        {"socket_send_buffer_bytes": 1_000},
        {"enable_something_that_nobody_knows_yet": True},
    ],
    ids=str,
)
def test_what_only_librdkafka_can_honour_is_left_to_it(settings: dict[str, Any]) -> None:
    assert not is_direct(**settings)


@needs_kernels
def test_the_environment_is_read_where_a_sink_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    assert best_route() == "direct"
    monkeypatch.setenv(DIRECT_VARIABLE, "Off")
    assert best_route() == "bulk"
    assert is_direct(), "and nowhere else"


def test_a_choice_says_no_at_once_where_it_is_not_possible() -> None:
    choice = DirectChoice(KafkaOptions("127.0.0.1:1", {"throttle_cb": print}), BatchLimit(1_000), 1.0, 10.0)
    nothing: Any = None
    assert choice.open(nothing, nothing, LedgerKey("id", "ledger"), nothing, None, 1.0) is None


def test_without_kernels_nothing_is_written_directly() -> None:
    with using(PLAIN):
        assert not is_direct()
