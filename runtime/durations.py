"""Durations and rates as people write them."""

from __future__ import annotations

import re

from onceflow.runtime.errors import OptionError

_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(?:(ms|s|min|h|d)|(millisecond|second|minute|hour|day)s?)\s*")
_RATE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*/\s*(s|min|h|d)\s*")
_UNIT_MS = {"ms": 1, "s": 1_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_UNITS = {"millisecond": "ms", "second": "s", "minute": "min", "hour": "h", "day": "d"}


def duration_ms(value: str | int, option: str) -> int:
    """`"2 s"`, `"500 ms"`, `"1 min"`, `"1 h"`, `"1 d"`, the same in words (`"2 seconds"`, `"1 hour"`), or an
    int in ms, as ms.

    Raises OptionError naming the option if it is anything else, or negative.
    """
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        example = 'write a number and ms, s, min, h or d, as in "2 s" or "500 ms"'
        raise OptionError(f"{option}={value!r} is not a duration: {example}")
    return round(float(match[1]) * _UNIT_MS[match[2] or _UNITS[match[3]]])


def signed_duration_ms(value: str | int, option: str) -> int:
    """A `duration_ms`, or one with a minus before it (`"-5 min"`)."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().startswith("-"):
        return -duration_ms(value.strip()[1:], option)
    return duration_ms(value, option)


def rate_per_s(value: str | float, option: str) -> float:
    """`"100/s"`, `"6000/min"`, `"1/h"`, or a number per second, as a number per second. Raises OptionError
    naming the option if it is anything else, or not above 0."""
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < float("inf"):
        return float(value)
    match = _RATE.fullmatch(value) if isinstance(value, str) else None
    if match is None or float(match[1]) == 0:
        raise OptionError(f'{option}={value!r} is no rate: write a number of records a time, as in "100/s"')
    return float(match[1]) * 1_000 / _UNIT_MS[match[2]]
