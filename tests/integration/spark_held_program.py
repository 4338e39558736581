"""jobs/totals.py on a Spark whose JVM is held back, half made, until the attempt has been launched.

    python spark_held_program.py CHECKPOINT_DIR CHECKPOINTS --bootstrap-servers … (arguments of the job)

Prints the run's events, stops after so many checkpoints, and ends with the outcome as its exit code: 0 for
stopped. This is what a restart meets whose log and sources answer before the JVM is up.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pyspark import SparkContext

from onceflow.cli.load import load_job
from onceflow.cli.report import JsonLines
from onceflow.runtime.api.run_options import run_options
from onceflow.runtime.checkpoint.events import Outcome
from onceflow.runtime.clock import SystemClock
from onceflow.runtime.driver.driver import JobDriver
from onceflow.runtime.errors import OnceflowError
from onceflow.runtime.hosts.spark.runner import SparkLauncher
from onceflow.runtime.report import JobProgress
from onceflow.runtime.slot.process import SlotLaunch

half_made, launched = threading.Event(), threading.Event()


class HeldContext(SparkContext):
    """At this point it is Spark's active context already, and has no JVM's context yet."""

    def _initialize_context(self, jconf: Any) -> Any:
        assert SparkContext._active_spark_context is self
        half_made.set()
        assert launched.wait(240)
        return super()._initialize_context(jconf)


class HeldLauncher(SparkLauncher):
    """Launches the attempt while the context is half made, and only then lets the JVM come up."""

    def launch(
        self,
        launch: SlotLaunch,
        parallelism: int,
        on_ended: Callable[[OnceflowError | None], None],
        on_waiting: Callable[[str], None],
    ) -> Callable[[], None]:
        assert not launched.is_set()
        try:
            assert half_made.wait(240)
            return super().launch(launch, parallelism, on_ended, on_waiting)
        finally:
            launched.set()


class StopAfter(JsonLines):
    """Asks for a stop after some checkpoints."""

    driver: JobDriver

    def __init__(self, checkpoints: int) -> None:
        super().__init__(sys.stdout)
        self._left = checkpoints

    def event(self, name: str, fields: Mapping[str, Any]) -> None:
        super().event(name, fields)
        self._left -= name == "checkpoint_completed"
        if self._left == 0:
            self.driver.request_stop()

    def progress(self, progress: JobProgress) -> None:
        pass


def main(folder: str, checkpoints: int, arguments: list[str]) -> int:
    loaded = load_job(str(Path(__file__).parent / "jobs" / "totals.py"), arguments)
    graph = loaded.job.build()
    launcher = HeldLauncher("local[2]", graph, {}, loaded.program, 2, HeldContext)
    options = run_options(folder, master="local[2]", parallelism=2, checkpoint_interval="100 ms")
    reporter = StopAfter(checkpoints)
    try:
        driver = JobDriver(graph, options, launcher, SystemClock(), reporter)
        reporter.driver = driver
        return int(driver.run(launcher.driver_host, launcher.listen_host).outcome is not Outcome.STOPPED)
    finally:
        launcher.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), sys.argv[3:]))
