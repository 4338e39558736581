"""Whether Spark's own settings ask for encrypted traffic between the processes of a job. Pure."""

from __future__ import annotations

from collections.abc import Mapping

SETTINGS = (
    "spark.ssl.rpc.enabled",
    "spark.network.crypto.enabled",
    "spark.authenticate.enableSaslEncryption",
)
"""Spark's three ways to encrypt what its processes say to each other. `spark.ssl.enabled` is for its web
pages, and Spark's own traffic does not inherit it; `spark.io.encryption.enabled` is for files."""


def encryption_asked_by(settings: Mapping[str, str]) -> str | None:
    """The first of these settings that is on. None: none is."""
    return next((name for name in SETTINGS if settings.get(name, "").strip().lower() == "true"), None)
