"""What a user gives as `start=`: where reading begins when a job has never run."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping

from onceflow.connectors.kafka.starts import AtOffsets, AtTime, Earliest, FromGroup, Latest, Start
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
        return AtTime(_time_ms(start.removeprefix("timestamp:")))
    if isinstance(start, dt.datetime):
        return AtTime(_datetime_ms(start, repr(start)))
    if isinstance(start, Mapping) and start:
        for split_id, offset in start.items():
            if not isinstance(split_id, str) or type(offset) is not int or offset < 0:
                raise OptionError(f'start={{{split_id!r}: {offset!r}}}: write offsets as {{"events-0": 17}}')
        return AtOffsets(dict(start))
    raise OptionError(
        f'start={start!r}: write "earliest", "latest", "group", "timestamp:2026-01-31T00:00:00Z", '
        '"timestamp:<ms>", a datetime, or offsets such as {"events-0": 17}'
    )


def _time_ms(text: str) -> int:
    if text.isdecimal():
        return int(text)
    try:
        return _datetime_ms(dt.datetime.fromisoformat(text), text)
    except ValueError as error:
        raise OptionError(f"start=timestamp:{text} is neither ms nor a date and time: {error}") from error


def _datetime_ms(time: dt.datetime, shown: str) -> int:
    if time.tzinfo is None:
        raise OptionError(f"start at {shown} has no time zone: add Z or an offset such as +02:00")
    return int(time.timestamp() * 1000)
