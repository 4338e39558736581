"""Who may speak with the processes of a run, and whether what they say is encrypted."""

from __future__ import annotations

import secrets

from onceflow.runtime.hosts.launch import SlotLauncher
from onceflow.runtime.report import Reporter
from onceflow.runtime.sockets.credentials import Credentials
from onceflow.runtime.sockets.loopback import is_loopback

SECRET_BYTES = 32
IN_THE_CLEAR = (
    "the key of --tls goes to the slots in Spark's own traffic, which is not encrypted: who can read that "
    "reads all. Set spark.authenticate=true and spark.network.crypto.enabled=true, or spark.ssl.rpc.enabled"
)


def new_credentials(is_tls_wanted: bool, launcher: SlotLauncher, reporter: Reporter) -> Credentials:
    """New ones for a run, once its host is ready. Tells the reporter whether all is encrypted, and why."""
    secret = secrets.token_bytes(SECRET_BYTES)
    asked_by = launcher.encryption_asked_by
    if not is_tls_wanted and asked_by is None:
        return Credentials(secret)
    # Here and not above: most runs make no certificate.
    from onceflow.runtime.sockets.certificate import new_identity

    reporter.event("encrypted", {"protocol": "TLS 1.3", "asked_by": asked_by or "--tls"})
    if asked_by is None and not is_loopback(launcher.driver_host):
        reporter.event("warning", {"reason": IN_THE_CLEAR})
    return Credentials(secret, new_identity())
