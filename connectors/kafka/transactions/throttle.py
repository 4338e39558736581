"""Throttle: for how long brokers have said that they read nothing more from a producer (KIP-219).

A broker answers what has used up a quota and only then stops to read from that connection, so it is the
next request on it that seems to be lost.
"""

from __future__ import annotations

import time
from collections.abc import Callable

_TOLD_S = 1.0
"""A shorter throttling, in s, is no reason for anything that fails."""


class Throttle:
    """The throttling of one producer by all its brokers."""

    def __init__(self, s_max: float, now_s: Callable[[], float] = time.monotonic) -> None:
        """`s_max`: no broker is waited for longer than this, whatever it says."""
        self.until_s = 0.0
        """The clock's time, in s, when the last throttling broker reads again, or has read again."""
        self._s_max = s_max
        self._now_s = now_s
        self._announced_s = 0.0

    def announce(self, at_s: float, throttle_s: float) -> None:
        """What a broker said at this time."""
        self._announced_s = max(self._announced_s, throttle_s)
        self.until_s = max(self.until_s, at_s + min(throttle_s, self._s_max))

    def forget_past(self) -> None:
        """Forget a throttling that is over: it is no reason for what fails from now on."""
        if self.until_s <= self._now_s():
            self._announced_s = 0.0

    def waited_s(self, since_s: float) -> float:
        """The seconds since then in which there could have been an answer."""
        return self._now_s() - max(since_s, self.until_s)

    @property
    def reason(self) -> str:
        """Why records wait, and what to do; empty if they don't for that."""
        if self._announced_s < _TOLD_S:
            return ""
        return (
            f"the broker throttles this client for {self._announced_s:.0f} s (a quota, such as "
            "producer_byte_rate): raise it, or make transaction_timeout longer"
        )
