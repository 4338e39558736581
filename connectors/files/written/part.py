"""Part: a file on its way, as checkpoints and the ledger remember it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Part:
    """A file that nobody sees yet; `size` bytes of it are durable.

    All but `name` and `size` is what its store finds it by. On S3 the file is an upload that is not
    completed: `etags` are its parts in their order, and `tail` is an object with what comes behind them, if
    the file is still being written ("": nothing does).
    """

    name: str
    """The path under which it will be seen, below the folder of the sink."""
    hidden: str
    """The name that it has until then: see `hidden_name`."""
    size: int
    attempt: int
    upload: str = ""
    etags: tuple[str, ...] = ()
    tail: str = ""

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "etags": list(self.etags)}

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> Part:
        return Part(**{**value, "etags": tuple(value["etags"])})


def hidden_name(attempt: int, subtask: int, writer: str, number: int) -> str:
    """The name of a writer's file while nobody sees it. `writer`: no two writers have the same, since Spark
    may run a task twice at once. `number`: the writer's next."""
    return f"{attempt:06d}.{subtask:04d}.{writer}.{number:06d}"


def attempt_of(hidden: str) -> int | None:
    """The attempt that has made this hidden file; None: it is none of a writer's."""
    first, _, rest = hidden.partition(".")
    return int(first) if rest and first.isdecimal() else None
