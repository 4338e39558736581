"""CPU and memory of a job's processes, from outside: what the operating system says of each of them.

Every benchmark uses this one, for us and for the others alike.
"""

from __future__ import annotations

import threading
import time

import psutil

_EVERY_S = 0.1


class CpuSampler:
    """CPU seconds and memory of a process and all its descendants, ten times a second.

    A process that ended keeps its last sample, so at most a tenth of a second of each is missed.
    """

    def __init__(self, pid: int) -> None:
        self._root = psutil.Process(pid)
        self._cpu: dict[int, float] = {}
        self.samples: list[tuple[float, float]] = []
        """Wall-clock time and CPU seconds up to then, in order."""
        self.rss_max = 0
        self.slot_rss_max = 0
        """The most that one slot of onceflow held, in bytes; `rss_max` is of all processes together."""
        self.seen: dict[int, psutil.Process] = {self._root.pid: self._root}
        """Every process there was, by its id: also one whose parent has gone."""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """No more samples; those taken stay."""
        self._over.set()
        self._thread.join()

    def cpu_between(self, start_s: float, end_s: float) -> float:
        """CPU seconds between two wall-clock times; 0 if there is no sample."""
        return self._at(end_s) - self._at(start_s)

    def _at(self, at_s: float) -> float:
        last = self.samples[-1][1] if self.samples else 0.0
        return next((cpu for time_s, cpu in self.samples if time_s >= at_s), last)

    def _run(self) -> None:
        while not self._over.wait(_EVERY_S):
            try:
                processes = [self._root, *self._root.children(recursive=True)]
            except psutil.Error:
                return
            rss = 0
            for process in processes:
                try:
                    times, memory = process.cpu_times(), process.memory_info().rss
                    is_slot = "spark.daemon" in " ".join(process.cmdline())
                except psutil.Error:
                    continue
                self.seen[process.pid] = process
                self._cpu[process.pid] = times.user + times.system
                rss += memory
                if is_slot:
                    self.slot_rss_max = max(self.slot_rss_max, memory)
            self.rss_max = max(self.rss_max, rss)
            self.samples.append((time.time(), sum(self._cpu.values())))
