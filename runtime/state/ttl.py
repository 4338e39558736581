"""The time to live of a declared state, as the user writes it."""

from __future__ import annotations

from typing import Any, Literal

from onceflow.runtime.durations import duration_ms
from onceflow.runtime.errors import GraphError
from onceflow.runtime.state.description import TimeToLive

Refresh = Literal["write", "read"]
Time = Literal["event", "processing"]


def time_to_live(name: str, ttl: str | int | None, refresh: Any, time: Any) -> TimeToLive | None:
    """None: the state has none. Raises GraphError for what is not a time to live."""
    what = f"state {name!r}"
    for option, value, known in (("ttl_refresh", refresh, ("write", "read")), ("ttl_time", time, _TIMES)):
        if value not in known:
            raise GraphError(f"{what}: {option}={value!r}: use {' or '.join(map(repr, known))}")
    if ttl is None:
        if (refresh, time) != ("write", "event"):
            raise GraphError(f"{what}: ttl_refresh and ttl_time say how a ttl counts: pass ttl= too")
        return None
    ms = duration_ms(ttl, f"{what}: ttl")
    if not ms:
        raise GraphError(f"{what}: ttl={ttl!r}: what expires at once is never there; leave the state out")
    return TimeToLive(ms, time == "processing", refresh == "read")


_TIMES = ("event", "processing")
