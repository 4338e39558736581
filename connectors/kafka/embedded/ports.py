"""Choosing and naming TCP ports on loopback."""

from __future__ import annotations

import random
import socket

import psutil

_HOST = "127.0.0.1"
# Below the range from which systems take the ports of outgoing connections (Linux from 32768, macOS
# from 49152): a port given up for a restart is then not taken by some client in between.
_CHOICES = range(20_000, 32_000)
# Not a program's own random numbers: two that seed them alike would choose the same port at one time.
_random = random.SystemRandom()


def free_port() -> int:
    """A port that nobody listens on now."""
    while True:
        port = _random.choice(_CHOICES)
        if is_free(port):
            return port


def is_free(port: int) -> bool:
    """Whether a server can bind it. Connections in TIME_WAIT do not count."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((_HOST, port))
        except OSError:
            return False
        return True


def port_owner(port: int) -> str:
    """ " by process 123 (java)", or "" where the system does not tell."""
    try:
        for connection in psutil.net_connections("tcp"):
            is_it = connection.status == psutil.CONN_LISTEN and connection.laddr[1:] == (port,)
            if is_it and connection.pid:
                return f" by process {connection.pid} ({psutil.Process(connection.pid).name()})"
    except psutil.Error:
        pass
    return ""
