"""Whether an address is one of this machine alone."""

from __future__ import annotations

from ipaddress import ip_address


def is_loopback(host: str) -> bool:
    """`host`: an address or a name. A name is not looked up, and only `localhost` counts: many machines know
    themselves by a name that leads to 127.0.1.1 on them and, on others, to where they are reached."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
