"""RollPolicy: when a file ends and the next one begins."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from onceflow.runtime.durations import duration_ms
from onceflow.runtime.errors import OptionError
from onceflow.runtime.explained_calls import explained

_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(B|KiB|MiB|GiB|kB|MB|GB)\s*")
_BYTES = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "kB": 10**3, "MB": 10**6, "GB": 10**9}


@explained
@dataclass(frozen=True)
class RollPolicy:
    """When a file ends. It is seen once the checkpoint after that is durable.

    `size`: about how large it gets ("128 MiB"). `on_checkpoint`: it ends with the checkpoint, so all that a
    checkpoint has is seen then. With `on_checkpoint=False` it goes on over checkpoints, for `interval` ("10
    min") after its first row, or until nothing was written to it for `idle`; both are looked at when a
    checkpoint is made. Parquet files, and all on HDFS, end with the checkpoint in any case, since the end of
    one says where its rows are, or only its writer knows how long it is.
    """

    size: str | int = "128 MiB"
    interval: str | int | None = None
    idle: str | int | None = None
    on_checkpoint: bool = True

    def __post_init__(self) -> None:
        for name, value in (("interval", self.interval), ("idle", self.idle)):
            if value is not None and duration_ms(value, name) == 0:
                raise OptionError(f"RollPolicy: {name}={value!r} has to be more than 0")
            if value is not None and self.on_checkpoint:
                raise OptionError(
                    f"RollPolicy: {name}={value!r} says nothing where a file ends with each checkpoint: say "
                    "on_checkpoint=False, too"
                )
        if not self.on_checkpoint and self.interval is None and self.idle is None:
            raise OptionError(
                "RollPolicy: with on_checkpoint=False the last rows would never be seen: say interval= or "
                "idle="
            )
        if self.size_bytes <= 0:
            raise OptionError(f"RollPolicy: size={self.size!r} has to be more than 0")

    @cached_property
    def size_bytes(self) -> int:
        """Raises OptionError."""
        return size_bytes(self.size, "size")

    def ends(self, age_ms: float, idle_ms: float) -> bool:
        """Whether a file ends with this checkpoint, which was begun and last written to so long ago."""
        if self.on_checkpoint:
            return True
        return (self.interval is not None and age_ms >= duration_ms(self.interval, "interval")) or (
            self.idle is not None and idle_ms >= duration_ms(self.idle, "idle")
        )


def check_split_size(value: str | int | None) -> None:
    """Raises OptionError."""
    if value is not None and size_bytes(value, "split_size") <= 0:
        raise OptionError(f"split_size={value!r}: a piece of a file has to have bytes: give more than 0")


def size_bytes(value: str | int, option: str) -> int:
    """`"64 MiB"`, `"1.5 GB"`, or an int in bytes, as bytes. Raises OptionError naming the option."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    match = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise OptionError(
            f"{option}={value!r} is no size: write a number and B, kB, MB, GB, KiB, MiB or GiB, as in "
            '"64 MiB"'
        )
    return round(float(match[1]) * _BYTES[match[2]])
