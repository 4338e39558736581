"""Whether brokers may be spoken to directly, past librdkafka."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

PAUSE_S = 10.0
"""After it went wrong."""


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


def may_be_direct(settings: Mapping[str, Any], variable: str) -> bool:
    """Whether brokers are spoken to in the clear, and nothing is asked for that only librdkafka does.
    `settings`: librdkafka's, as the user gave them. `variable`: of the environment, which is read here;
    `off` turns it off."""
    return (
        os.environ.get(variable, "").lower() != "off"
        and str(settings.get("security.protocol", "plaintext")).lower() == "plaintext"
        and not _ONLY_LIBRDKAFKA & settings.keys()
    )
