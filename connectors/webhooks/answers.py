"""What a receiver's answer to a request means for whoever sends it. Pure."""

from __future__ import annotations

from onceflow.runtime.errors import Fatal, Retryable

_PASSING = (408, 409, 423, 425, 429)
"""Answers that pass by themselves, as all from 500 on do. 409: a request with this key is being handled."""
_ELSEWHERE = (401, 403, 404, 405, 407, 410)
"""Answers that are about the address or the sender, and about no row."""
_SAID_MAX = 300


class RefusedError(Exception):
    """The receiver takes no such rows, whenever they are sent."""


def meaning(status: int, body: bytes, where: str) -> Exception | None:
    """None: it is accepted. Retryable, Fatal, or RefusedError, with what was said."""
    if 200 <= status < 300:
        return None
    said = " ".join(body[:_SAID_MAX].decode("utf-8", "replace").split())
    text = f"the receiver answers {status}" + (f" ({said})" if said else "")
    if status >= 500 or status in _PASSING:
        return Retryable(f"{where}: {text}")
    if status in _ELSEWHERE or status < 400:
        return Fatal(f"{where}: {text}: correct the URL or the headers")
    return RefusedError(text)
