"""Signals of a process that runs a job: the first stops the job cleanly, the second at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from onceflow.runtime.driver.driver import JobDriver


class RunSignals:
    """SIGINT and SIGTERM: a last checkpoint, then the end; a second one: the end at once."""

    def __init__(self) -> None:
        self.was_sent = False
        self._was_told = False
        self._driver: JobDriver | None = None

    def deliver_to(self, driver: JobDriver) -> None:
        """Give signals to this driver from now on; one that came before counts."""
        self._driver = driver
        if self.was_sent and not self._was_told:
            self._was_told = True
            driver.request_stop()

    def on_signal(self, signum: int, frame: Any) -> None:
        self.was_sent = True
        if self._driver is not None and self._was_told:
            self._driver.request_cancel(f"stopped at once by a second {signal.Signals(signum).name}")
        elif self._driver is not None:
            self._was_told = True
            self._driver.request_stop()


@contextmanager
def run_signals() -> Iterator[RunSignals]:
    """Take both signals as long as the block runs; only on the main thread, where Python lets one."""
    signals = RunSignals()
    if threading.current_thread() is not threading.main_thread():
        yield signals
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    previous = {number: signal.signal(number, signals.on_signal) for number in numbers}
    try:
        yield signals
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
