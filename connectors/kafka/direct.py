"""Whether brokers may be spoken to directly, past librdkafka."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping
from typing import Any

from onceflow.runtime.kernels.compiled import kernels_enabled

PAUSE_S = 10.0
"""After it went wrong."""


def may_be_direct(settings: Mapping[str, Any], variable: str) -> bool:
    """Whether kernels are on and brokers are spoken to in the clear. `settings`: librdkafka's. `variable`: of
    the environment; `off` turns it off."""
    return (
        kernels_enabled()
        and os.environ.get(variable, "").lower() != "off"
        and str(settings.get("security.protocol", "plaintext")).lower() == "plaintext"
        and all(importlib.util.find_spec(name) for name in ("cramjam", "google_crc32c"))
    )
