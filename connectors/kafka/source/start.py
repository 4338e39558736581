"""What a user gives as `start=` and `until=`: where reading begins and ends when a job has never run."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any

from onceflow.connectors.kafka.starts import AtOffsets, AtTime, Earliest, FromGroup, Latest, Start, Stop
from onceflow.runtime.errors import OptionError


def parse_start(start: object, group_id: str | None) -> Start:
    """Raises OptionError for a start that is none."""
    if start == "earliest":
        return Earliest()
    if start == "latest":
        return Latest()
    if start == "group":
        if group_id is None:
            raise OptionError('start="group" needs a group_id')
        return FromGroup(group_id)
    if isinstance(start, str) and start.startswith("timestamp:"):
        return AtTime(_time_ms("start", start.removeprefix("timestamp:")))
    if isinstance(start, dt.datetime):
        return AtTime(_datetime_ms("start", start, repr(start)))
    if isinstance(start, Mapping) and start:
        return AtOffsets(_offsets("start", start))
    raise OptionError(
        f'start={start!r}: write "earliest", "latest", "group", "timestamp:2026-01-31T00:00:00Z", '
        '"timestamp:<ms>", a datetime, or offsets such as {"events-0": 17}'
    )


def parse_until(until: object, now_ms: float | None = None) -> Stop:
    """Where a source that ends does so; without an end it is never asked. Raises OptionError for an end that
    is none, and for a time after `now_ms`: what is read up to it is not there yet."""
    if until in (None, "latest"):
        return Latest()
    time_ms = None
    if isinstance(until, str) and until.startswith("timestamp:"):
        time_ms = _time_ms("until", until.removeprefix("timestamp:"))
    if isinstance(until, dt.datetime):
        time_ms = _datetime_ms("until", until, repr(until))
    if time_ms is not None:
        if now_ms is not None and time_ms > now_ms:
            raise OptionError(
                f"until={until!r} has not come yet: choose a time that has, or stop the job then"
            )
        return AtTime(time_ms)
    if isinstance(until, Mapping) and until:
        return AtOffsets(_offsets("until", until))
    raise OptionError(
        f'until={until!r}: write "latest", "timestamp:2026-01-31T00:00:00Z", a datetime, offsets such as '
        '{"events-0": 17}, or leave it out to go on for ever'
    )


def _offsets(option: str, given: Mapping[Any, Any]) -> dict[str, int]:
    for split_id, offset in given.items():
        if not isinstance(split_id, str) or type(offset) is not int or offset < 0:
            raise OptionError(f'{option}={{{split_id!r}: {offset!r}}}: write offsets as {{"events-0": 17}}')
    return dict(given)


def _time_ms(option: str, text: str) -> int:
    if text.isdecimal():
        return int(text)
    try:
        return _datetime_ms(option, dt.datetime.fromisoformat(text), text)
    except ValueError as error:
        raise OptionError(f"{option}=timestamp:{text} is neither ms nor a date and time: {error}") from error


def _datetime_ms(option: str, time: dt.datetime, shown: str) -> int:
    if time.tzinfo is None:
        raise OptionError(f"{option}: {shown} has no time zone: add Z or an offset such as +02:00")
    return int(time.timestamp() * 1000)
