"""Executors of a standalone cluster that are started and don't come: from what the driver's JVM logs of them.

An executor that can't reach the driver ends, and the cluster starts the next one. Of all that Spark tells
its driver nothing but some lines of its log: no listener hears of an executor that has never registered.
"""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass

from onceflow.runtime.clock import Clock
from onceflow.runtime.hosts.spark.master_watch import MasterWatch

ENDED_MAX = 2
"""How many executors may end before one has registered; more are no accident."""
REGISTERS_WITHIN_MS = 150_000.0
"""An executor that runs for so long has started its JVM and connected, even on a machine so busy that this
takes a minute: the verdict ends the job, so it must not be a guess."""

LOGGER = "StandaloneAppClient"
_ADDED = re.compile(r"Executor added: (\S+) on \S+ \((.+):\d+\)")
_UPDATED = re.compile(r"Executor updated: (\S+) is now (\w+)(?: \((.*)\))?")
_HAS_ENDED = ("EXITED", "FAILED")
_IS_AWAY = ("KILLED", "LOST", "DECOMMISSIONED")


@dataclass(slots=True)
class _Executor:
    host: str
    since_ms: float | None = None
    """Since when it runs; None: it does not run yet."""


class ExecutorWatch:
    """One for each JVM. `hear` is called on the thread that reads the JVM's log, all else on the one that
    waits for slots."""

    def __init__(self, clock: Clock) -> None:
        self.masters = MasterWatch()
        self._clock = clock
        self._lock = threading.Lock()
        self._executors: dict[str, _Executor] = {}
        self._ended: list[tuple[str, str]] = []
        """(host, why) of executors that ended by themselves, since `begin`."""
        self._last_ended: tuple[str, str] | None = None

    def begin(self) -> None:
        """Count anew: executors are there, or another attempt waits for them."""
        with self._lock:
            self._ended.clear()
            for executor in self._executors.values():
                if executor.since_ms is not None:
                    executor.since_ms = self._clock.monotonic_ms()

    def hear(self, line: str) -> None:
        """Take what a line of the log says, if it is about an executor or a master."""
        self.masters.hear(line)
        with self._lock:
            if added := _ADDED.search(line):
                self._executors[added[1]] = _Executor(added[2])
            elif (updated := _UPDATED.search(line)) and updated[1] in self._executors:
                self._update(*updated.groups())

    def _update(self, name: str, state: str, why: str | None) -> None:
        if state == "RUNNING":
            self._executors[name].since_ms = self._clock.monotonic_ms()
        elif state in _HAS_ENDED:
            self._last_ended = (self._executors.pop(name).host, why or "it gave no reason")
            self._ended.append(self._last_ended)
        elif state in _IS_AWAY:
            del self._executors[name]

    def trouble(self) -> str | None:
        """What is wrong while no executor has registered: so many have ended, or one runs for so long. None:
        there is still hope."""
        with self._lock:
            if len(self._ended) > ENDED_MAX:
                host, why = self._ended[-1]
                return f"{len(self._ended)} have ended soon after their start, the last one on {host}: {why}"
            now_ms = self._clock.monotonic_ms()
            for executor in self._executors.values():
                if executor.since_ms is not None and now_ms - executor.since_ms >= REGISTERS_WITHIN_MS:
                    return f"one runs on {executor.host} since {(now_ms - executor.since_ms) / 1000:.0f} s"
        return None

    def told(self) -> str:
        """What a line that waits for slots says of the executors, in parentheses; "" if there is nothing to
        say. One that ended in an earlier attempt is named: its slot could only say that it was lost."""
        trouble = self.trouble()
        if trouble is not None:
            return f" (of its executors {trouble})"
        with self._lock:
            if self._last_ended is None:
                return ""
            return " (the last executor that ended was on {}: {})".format(*self._last_ended)
