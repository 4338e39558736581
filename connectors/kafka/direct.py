"""Whether brokers may be spoken to directly, past librdkafka."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

PAUSE_S = 10.0
"""After it went wrong."""


def may_be_direct(settings: Mapping[str, Any], variable: str) -> bool:
    """Whether brokers are spoken to in the clear. `settings`: librdkafka's. `variable`: of the environment;
    `off` turns it off."""
    return (
        os.environ.get(variable, "").lower() != "off"
        and str(settings.get("security.protocol", "plaintext")).lower() == "plaintext"
    )
