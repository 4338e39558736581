"""What the texts of Spark's options stand for."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from onceflow.runtime.durations import duration_ms, rate_per_s
from onceflow.runtime.errors import OptionError

Convert = Callable[[str, str], Any]
"""From an option's name and its text to what a source or sink is given. Raises OptionError."""


def text(name: str, value: str) -> str:
    if not value.strip():
        raise OptionError(f"option {name!r} is empty: give it a text, or leave it out")
    return value


def names(name: str, value: str) -> tuple[str, ...]:
    """Names of columns, with commas between them."""
    found = tuple(each.strip() for each in value.split(","))
    if not all(found):
        raise OptionError(f"option {name!r} is {value!r}: give names with a comma between two of them")
    return found


def json_object(name: str, value: str) -> Mapping[str, str]:
    """Names and texts, as JSON."""
    try:
        return {key: str(each) for key, each in json.loads(value).items()}
    except (ValueError, AttributeError) as error:
        raise OptionError(f"option {name!r} is not a JSON object: {error}") from error


def yes_or_no(name: str, value: str) -> bool:
    if value.strip().lower() not in ("true", "false"):
        raise OptionError(f"option {name!r} is {value!r}: give true or false")
    return value.strip().lower() == "true"


def number(name: str, value: str) -> int:
    if not value.strip().isdigit():
        raise OptionError(f"option {name!r} is {value!r}: give a number, such as 100")
    return int(value)


def size(name: str, value: str) -> int:
    """A size in bytes, as in "64 MiB"."""
    from onceflow.connectors.files.rolling import size_bytes

    found = int(value) if value.strip().isdigit() else size_bytes(value, name)
    if found < 1:
        raise OptionError(f"option {name!r} is {value!r}: give more than 0")
    return found


def per_second(name: str, value: str) -> float:
    """A rate, as in "1000/s"."""
    return rate_per_s(float(value) if value.strip().isdigit() else value, name)


def duration(name: str, value: str) -> int:
    """A time in ms, as in "1 min"."""
    return duration_ms(value, name)


def path(name: str, value: str) -> str:
    """A path or a URL; Spark writes those of this machine as URLs."""
    found = text(name, value)
    if found.startswith("file:/") and not found.startswith("file://"):
        found = found.removeprefix("file:")
    return found
