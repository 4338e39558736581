"""The calls of objects under test: written down for whoever has to repeat them, and places to crash."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NoReturn

from onceflow.runtime.records import Records


class CrashError(BaseException):
    """The process would be dead now. No Exception, so that nobody who catches all of them goes on."""


def crash_here() -> NoReturn:
    """End what a process would be, within one: nothing is closed."""
    raise CrashError


@dataclass(frozen=True)
class CrashPoint:
    """Before or after the nth call, from 1, of a method of the contract (`SinkWriter.commit`)."""

    method: str
    is_after: bool
    nth: int = 1


@dataclass
class Calls:
    """The calls of one run. `crash_at`: where `crash` is called, which does not come back."""

    crash_at: CrashPoint | None = None
    crash: Callable[[], NoReturn] = crash_here
    steps: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)

    def watch(self, wrapped: Any, contract: str, who: str) -> Any:
        """The same object, whose calls are written down as those of `who`. `contract`: SinkWriter, PreCommit
        or SinkCommitter."""
        return _Watched(wrapped, contract, who, self)

    def say(self, step: str) -> None:
        """Write down what is not a call."""
        self.steps.append(step)

    def comes(self, method: str, said: str) -> bool:
        """A call is about to be made. Whether the crash comes after it."""
        self.steps.append(said)
        count = self.counts[method] = self.counts.get(method, 0) + 1
        point = self.crash_at
        is_here = point is not None and (point.method, point.nth) == (method, count)
        if point is None or not is_here:
            return False
        if not point.is_after:
            self.steps.append("the process is killed before this call")
            self.crash()
        return True


class _Watched:
    def __init__(self, wrapped: Any, contract: str, who: str, calls: Calls) -> None:
        self._wrapped = wrapped
        self._contract = contract
        self._who = who
        self._calls = calls

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._wrapped, name)
        if name.startswith("_") or not callable(attribute):
            return attribute

        def call(*arguments: Any) -> Any:
            said = f"{self._who}.{name}({', '.join(map(_shown, arguments))})"
            dies = self._calls.comes(f"{self._contract}.{name}", said)
            result = attribute(*arguments)
            if dies:
                self._calls.say("the process is killed after this call")
                self._calls.crash()
            return result

        return call


def _shown(argument: object) -> str:
    if isinstance(argument, Records):
        return f"rows {argument.batch.to_pylist()}"
    if isinstance(argument, list | tuple):
        return f"[{', '.join(map(_shown, argument))}]"
    if owner := getattr(argument, "owner", None):
        return f"committable of subtask {owner}, checkpoint {getattr(argument, 'checkpoint_id', '?')}"
    return repr(argument)
