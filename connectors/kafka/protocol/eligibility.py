"""Whether brokers may be spoken to directly, past librdkafka."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from onceflow.connectors.kafka.protocol.broker_access import may_access

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


def may_be_direct(settings: Mapping[str, Any], variable: str) -> bool:
    """Whether a direct connection can do all that is asked for about reaching brokers. `settings`:
    librdkafka's, as the user gave them. `variable`: of the environment, which is read here; `off` turns it
    off."""
    return is_switched_on(variable) and may_access(settings) and not _ONLY_LIBRDKAFKA & settings.keys()
