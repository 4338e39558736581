"""A job that runs on threads of the test's process, beside the test, on a real broker."""

from __future__ import annotations

import threading
from typing import Any

from onceflow.runtime.api.job import Job
from onceflow.runtime.api.run_options import run_options
from onceflow.runtime.api.until import ended_at
from onceflow.runtime.checkpoint.events import Outcome
from onceflow.runtime.clock import SystemClock
from onceflow.runtime.driver.driver import JobDriver
from onceflow.runtime.driver.result import JobResult
from onceflow.runtime.durations import duration_ms
from onceflow.runtime.errors import OnceflowError
from onceflow.runtime.hosts.local import LocalLauncher
from onceflow.runtime.report import Silent


class BackgroundJob:
    """Runs from the moment it is made. A job whose sources have an end ends by itself: `wait`."""

    def __init__(self, job: Job, checkpoint_dir: str, slots: int = 1, **options: Any) -> None:
        """`options`: as those of Job.run, such as checkpoint_interval="100 ms"."""
        chosen = {"checkpoint_interval": "100 ms", "restart": "none", **options}
        wanted = run_options(checkpoint_dir, master=f"threads[{slots}]", parallelism=slots, **chosen)
        self._name = job.name
        self._launcher = LocalLauncher(slots)
        graph = job.build() if wanted.until is None else ended_at(job.build(), wanted.until)
        self._driver = JobDriver(graph, wanted, self._launcher, SystemClock(), Silent())
        self._result: JobResult | None = None
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name=f"onceflow-{job.name}", daemon=True)
        self._thread.start()

    def wait(self, timeout: str | int = "1 min") -> JobResult:
        """Wait until the job has ended. Raises OnceflowError with the reason if it failed, or if it has not
        ended by then."""
        timeout_ms = duration_ms(timeout, "timeout")
        self._thread.join(timeout_ms / 1000)
        if self._thread.is_alive():
            raise OnceflowError(
                f"job {self._name!r} still runs after {timeout_ms / 1000:g} s: one whose sources have no end "
                "(until=) is to be stopped, not waited for"
            )
        if self._error is not None:
            raise self._error
        assert self._result is not None
        if self._result.outcome not in (Outcome.FINISHED, Outcome.STOPPED):
            raise OnceflowError(f"job {self._name!r} failed: {self._result.reason}")
        return self._result

    def stop(self, timeout: str | int = "1 min") -> JobResult:
        """A last checkpoint, and the end. The next run on its checkpoint folder goes on from there."""
        self._driver.request_stop()
        return self.wait(timeout)

    def cancel(self) -> None:
        """The end at once, as a crash would; never raises. For the end of a test."""
        self._driver.request_cancel("the test has ended")
        self._thread.join(10)

    def _run(self) -> None:
        try:
            self._result = self._driver.run(self._launcher.driver_host)
        except Exception as error:
            self._error = error
        finally:
            self._launcher.close()
