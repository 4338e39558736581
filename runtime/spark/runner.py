"""SparkLauncher: one barrier stage hosts the slots of an attempt.

Facts this rests on (measured, docs/adr/0004-spark-barrier-stage.md): a barrier result stage is never
retried by Spark; cancelling raises in the driver within 100 ms but kills Python workers seconds later
and without a signal they could handle; so restarts are the coordinator's and slots end themselves when
their control connection closes.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Callable, Mapping
from importlib.resources import as_file, files
from typing import Any

from pyspark import SparkConf, SparkContext, cloudpickle, inheritable_thread_target

from onceflow.runtime.errors import OptionError
from onceflow.runtime.slot_process import SlotLaunch
from onceflow.runtime.spark.executor import SlotFunction

OWN_SETTINGS: Mapping[str, str] = {
    "spark.stage.maxConsecutiveAttempts": "1",
    "spark.task.maxFailures": "1",
    "spark.scheduler.barrier.maxConcurrentTasksCheck.interval": "1s",
    "spark.python.worker.faulthandler.enabled": "true",
    "spark.dynamicAllocation.enabled": "false",
}
"""Settings that restarts and exactness rest on; a user's own value for one of them is refused."""

DEFAULT_SETTINGS: Mapping[str, str] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "512m",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}
"""For local masters; a user's value goes first."""


class SparkLauncher:
    """Owns the SparkContext. Making it starts the JVM (2-3 s)."""

    def __init__(self, master: str, job: str, settings: Mapping[str, str], modules: tuple[Any, ...]) -> None:
        """`modules`: the user's own modules, whose functions and classes are shipped by value.

        Raises OptionError for a setting that is ours.
        """
        for name, value in settings.items():
            if OWN_SETTINGS.get(name, value) != value:
                raise OptionError(
                    f"--conf {name}={value} can't be set: onceflow restarts attempts itself and needs "
                    f"{OWN_SETTINGS[name]}"
                )
        for module in modules:
            cloudpickle.register_pickle_by_value(module)
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        is_local = master.startswith("local")
        conf = SparkConf(loadDefaults=True).setMaster(master).setAppName(job)
        with as_file(files("onceflow.runtime.spark") / "log4j2.properties") as logging_file:
            defaults = dict(DEFAULT_SETTINGS) if is_local else {}
            defaults["spark.driver.extraJavaOptions"] = f"-Dlog4j2.configurationFile={logging_file}"
            for name, value in (defaults | dict(settings) | dict(OWN_SETTINGS)).items():
                conf.set(name, value)
            self._context = SparkContext(conf=conf)
        self._context.setLogLevel("ERROR")
        self._attempt = 0

    @property
    def slots_max(self) -> int:
        return int(self._context.defaultParallelism)

    @property
    def driver_host(self) -> str:
        """An address of the driver that the executors can reach: where the control server listens."""
        return str(self._context.getConf().get("spark.driver.host", "127.0.0.1"))

    def launch(self, launch: SlotLaunch, parallelism: int, on_ended: Callable[[str | None], None]) -> None:
        self._attempt = launch.attempt
        function = SlotFunction(launch)

        def run_stage() -> None:
            self._context.setJobGroup(self._group, f"onceflow attempt {launch.attempt}")
            try:
                rdd = self._context.parallelize(range(parallelism), parallelism)
                rdd.barrier().mapPartitions(function).count()
            except Exception as error:
                on_ended(_reason(error))
            else:
                on_ended(None)

        thread = threading.Thread(
            target=inheritable_thread_target(self._context)(run_stage), name="onceflow-stage", daemon=True
        )
        thread.start()

    def cancel(self) -> None:
        self._context.cancelJobGroup(self._group)

    def close(self) -> None:
        self._context.stop()

    @property
    def _group(self) -> str:
        return f"onceflow-{self._attempt}"


def _reason(error: Exception) -> str:
    """The one line of a Spark error that says what happened."""
    text = str(error)
    match = re.search(r"Job aborted due to stage failure: (.+)|Job \d+ cancelled.*", text)
    return match[0].strip() if match else text.strip().splitlines()[0][:500]
