"""SparkLauncher: one barrier stage hosts the slots of an attempt.

Facts this rests on (measured, docs/adr/0004-spark-barrier-stage.md): a barrier result stage is never
retried by Spark; cancelling raises in the driver within 100 ms but kills Python workers seconds later
and without a signal they could handle; so restarts are the coordinator's and slots end themselves when
their control connection closes.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import as_file, files
from pathlib import Path
from tempfile import TemporaryDirectory

from py4j.protocol import Py4JError
from pyspark import InheritableThread, SparkConf, SparkContext

from onceflow.runtime.errors import OptionError
from onceflow.runtime.graph import JobGraph
from onceflow.runtime.java import find_java
from onceflow.runtime.program import Program, archive_modules
from onceflow.runtime.slot_process import SlotLaunch
from onceflow.runtime.spark.class_archive import as_setting, local_java_options
from onceflow.runtime.spark.executor import SlotFunction
from onceflow.runtime.spark.shipping import pack_graph

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

    def __init__(self, master: str, graph: JobGraph, settings: Mapping[str, str], program: Program) -> None:
        """Raises OptionError for a setting that is ours, GraphError for a graph that can't be shipped."""
        for name, value in settings.items():
            if OWN_SETTINGS.get(name, value) != value:
                raise OptionError(
                    f"--conf {name}={value} can't be set: onceflow restarts attempts itself and needs "
                    f"{OWN_SETTINGS[name]}"
                )
        java = find_java()  # here: what is raised below, on a thread, counts as a failure to try again
        self._packed = pack_graph(graph, program.module)
        self._files = TemporaryDirectory(prefix="onceflow-")
        self._modules = Path(self._files.name, "modules.zip")
        if program.folder is None or not archive_modules(program.folder, self._modules):
            self._files.cleanup()
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        is_local = master.startswith("local")
        self._settings = {
            "spark.python.daemon.module": "onceflow.runtime.spark.daemon",
            **(DEFAULT_SETTINGS if is_local else {}),
            **settings,
            **OWN_SETTINGS,
        }
        self._java_options = local_java_options(java) if is_local else ()
        self._master = master
        self._job = graph.job
        self._attempt = 0
        # On a thread: the JVM takes seconds, and the driver has a log to read and sources to ask
        # meanwhile. (And only on the main thread would Spark take SIGINT for itself.)
        self._starter = ThreadPoolExecutor(1, thread_name_prefix="onceflow-jvm")
        self._started = self._starter.submit(self._start)

    def _start(self) -> SparkContext:
        with as_file(files("onceflow.runtime.spark") / "log4j2.properties") as logging_file:
            conf = SparkConf(loadDefaults=True).setMaster(self._master).setAppName(self._job)
            java_options = [f"-Dlog4j2.configurationFile={logging_file}", *self._java_options]
            conf.set("spark.driver.extraJavaOptions", as_setting(java_options))
            for name, value in self._settings.items():
                conf.set(name, value)
            context = SparkContext(conf=conf)
        context.setLogLevel("ERROR")
        if self._modules.exists():
            context.addArchive(str(self._modules))
        return context

    @property
    def _context(self) -> SparkContext:
        """Waits for the JVM."""
        return self._started.result()

    @property
    def slots_max(self) -> int:
        return int(self._context.defaultParallelism)

    @property
    def driver_host(self) -> str:
        """An address of the driver that the executors can reach: where the control server listens."""
        host = self._settings.get("spark.driver.host")
        return host or str(self._context.getConf().get("spark.driver.host"))

    def launch(self, launch: SlotLaunch, parallelism: int, on_ended: Callable[[str | None], None]) -> None:
        self._attempt = launch.attempt
        folder = self._modules.name if self._modules.exists() else None
        function = SlotFunction(launch, self._packed, folder)

        def run_stage() -> None:
            try:
                self._context.setJobGroup(self._group, f"onceflow attempt {launch.attempt}")
                rdd = self._context.parallelize(range(parallelism), parallelism)
                rdd.barrier().mapPartitions(function).count()
            except Exception as error:
                on_ended(_reason(error))
            else:
                on_ended(None)

        # Inheritable: its JVM twin ends with it.
        try:
            InheritableThread(target=run_stage, name="onceflow-stage", daemon=True).start()
        except (Py4JError, OSError) as error:
            on_ended(f"Spark is gone: {_reason(error)}")

    def cancel(self) -> None:
        with contextlib.suppress(Py4JError, OSError):  # the JVM is gone, and the slots with it
            self._context.cancelJobGroup(self._group)

    def close(self) -> None:
        try:
            with contextlib.suppress(Py4JError, OSError):
                self._context.stop()
        finally:
            self._starter.shutdown()
            self._files.cleanup()

    @property
    def _group(self) -> str:
        return f"onceflow-{self._attempt}"


def _reason(error: Exception) -> str:
    """The one line of a Spark error that says what happened."""
    text = str(error)
    match = re.search(r"Job aborted due to stage failure: (.+)|Job \d+ cancelled.*", text)
    return match[0].strip() if match else text.strip().splitlines()[0][:500]
