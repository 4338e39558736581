"""Whether brokers may be spoken to directly, past librdkafka."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

PAUSE_S = 10.0
"""The seconds after a fault in which librdkafka has its turn."""


DIRECT_FETCH_VARIABLE = "ONCEFLOW_DIRECT_FETCH"
"""`off`: all is read by librdkafka."""

_ONLY_LIBRDKAFKA = frozenset(
    {
        "broker.address.family",
        "client.dns.lookup",
        "plugin.library.paths",
        "socket.keepalive.enable",
        "socket.receive.buffer.bytes",
        "socket.send.buffer.bytes",
        "throttle_cb",
    }
)
"""Settings by which a user changes how brokers are reached, or wants to be told of throttling."""


def is_switched_on(variable: str) -> bool:
    """`variable`: of the environment; `off` turns it off. Read where a source or a sink is opened."""
    return os.environ.get(variable, "").lower() != "off"


def is_plain(settings: Mapping[str, Any]) -> bool:
    """Whether brokers are spoken to in the clear. `settings`: librdkafka's."""
    return str(settings.get("security.protocol", "plaintext")).lower() == "plaintext"


def may_be_direct(settings: Mapping[str, Any], variable: str) -> bool:
    """Whether brokers are spoken to in the clear, and nothing is asked for that only librdkafka does.
    `settings`: librdkafka's, as the user gave them. `variable`: of the environment, which is read here;
    `off` turns it off."""
    return is_switched_on(variable) and is_plain(settings) and not _ONLY_LIBRDKAFKA & settings.keys()
