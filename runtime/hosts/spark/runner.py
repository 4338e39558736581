"""SparkLauncher: one barrier stage hosts the slots of an attempt.

Facts this rests on (measured, docs/adr/0004-spark-barrier-stage.md): a barrier result stage is never
retried by Spark; cancelling raises in the driver within 100 ms but kills Python workers seconds later
and without a signal they could handle; so restarts are the coordinator's and slots end themselves when
their control connection closes.
"""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import as_file, files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError

from onceflow.runtime.clock import SystemClock
from onceflow.runtime.environment.java import find_java
from onceflow.runtime.environment.program import Program, archive_modules
from onceflow.runtime.errors import Fatal, OnceflowError, Retryable
from onceflow.runtime.graph.job_graph import JobGraph
from onceflow.runtime.hosts.launch import RESTORING, compiling
from onceflow.runtime.hosts.spark.barrier_stage import BarrierStage
from onceflow.runtime.hosts.spark.class_archive import as_setting, local_java_options
from onceflow.runtime.hosts.spark.cluster import (
    failed_on,
    jvm_context,
    slots_now,
)
from onceflow.runtime.hosts.spark.encryption import encryption_asked_by
from onceflow.runtime.hosts.spark.executor import SlotFunction
from onceflow.runtime.hosts.spark.executor_watch import ExecutorWatch
from onceflow.runtime.hosts.spark.jvm_errors import launch_jvm
from onceflow.runtime.hosts.spark.settings import choose_python, job_settings
from onceflow.runtime.hosts.spark.shipping import pack_graph
from onceflow.runtime.hosts.spark.slot_limit import can_grow, check_fits, slot_limit
from onceflow.runtime.hosts.spark.spark_errors import cause_of, error_of
from onceflow.runtime.hosts.spark.submitted import keep_still, refuse_second_context
from onceflow.runtime.slot.process import SlotLaunch


class SparkLauncher:
    """Owns the SparkContext. Making it starts the JVM (2-3 s)."""

    def __init__(
        self,
        master: str,
        graph: JobGraph,
        settings: Mapping[str, str],
        program: Program,
        parallelism: int | None = None,
        context_type: type[SparkContext] = SparkContext,
    ) -> None:
        """`parallelism`: None: it is to be what the master offers.

        Raises OptionError for a setting that is ours, GraphError for a graph that can't be shipped.
        """
        refuse_second_context()
        is_local = self._is_local = master.startswith("local")
        self._settings = job_settings(settings, is_local)
        java = find_java()  # here, where it is wrong use of the command, and not on a thread
        self._packed = pack_graph(graph, program.module)
        self._files = TemporaryDirectory(prefix="onceflow-")
        self._modules = Path(self._files.name, "modules.zip")
        if program.folder is None or not archive_modules(program.folder, self._modules):
            self._files.cleanup()
        choose_python(settings)
        self._java_options = local_java_options(java) if is_local else ()
        self._master = master
        self._can_grow = can_grow(master)
        self._job = graph.job
        self._context_type = context_type
        self._slots_max = slot_limit(master, settings) if is_local else parallelism
        self._executors = ExecutorWatch(SystemClock())
        self._stages: set[BarrierStage] = set()
        self._compiling = compiling() if is_local else ""
        self._is_closing = threading.Event()
        self._own_jvm: Any = None
        """The process of the JVM, if it is ours and is there."""
        # On a thread: the JVM takes seconds, and the driver has a log to read and sources to ask
        # meanwhile. (And only on the main thread would Spark take SIGINT for itself.)
        self._starter = ThreadPoolExecutor(1, thread_name_prefix="onceflow-jvm")
        self._started = self._starter.submit(self._start)

    def _start(self) -> SparkContext:
        try:
            with as_file(files("onceflow.runtime.hosts.spark") / "log4j2.properties") as logging_file:
                conf = SparkConf(loadDefaults=True).setMaster(self._master).setAppName(self._job)
                java_options = [f"-Dlog4j2.configurationFile={logging_file}", *self._java_options]
                conf.set("spark.driver.extraJavaOptions", as_setting(java_options))
                for name, value in self._settings.items():
                    conf.set(name, value)
                gateway = SparkContext._gateway  # of an earlier job in this process
                if gateway is None:
                    gateway = launch_jvm(conf, self._executors.hear)
                    self._own_jvm = gateway.proc
                if self._is_closing.is_set():
                    if self._own_jvm is not None:
                        self._own_jvm.terminate()
                    raise Retryable("Spark was ended while it started")
                context = self._context_type(conf=conf, gateway=gateway)
            context.setLogLevel("ERROR")
            if self._own_jvm is None:
                keep_still(gateway)
            if self._modules.exists():
                context.addArchive(str(self._modules))
        except (Py4JError, PySparkRuntimeError, OSError, ValueError) as error:
            raise self._executors.masters.not_started(self._master, cause_of(str(error))) from error
        return context

    def coming_up(self) -> str:
        return f"Spark's JVM starts and executors register{self._executors.masters.waiting}"

    def wait_ready(self, timeout_s: float) -> bool:
        """Returns at once on a local master, where all is known; elsewhere when the JVM is up and has read
        its files, and, if the parallelism is to be what there is, when so many executors have come that no
        more come."""
        if self._slots_max is not None and self._is_local:
            return True
        try:
            context = self._started.result(timeout_s)
            if self._slots_max is None:
                before = slots_now(context)
                has_settled = not self._can_grow or not self._is_closing.wait(timeout_s)
                if has_settled and 0 < before == slots_now(context):
                    self._slots_max = before
        except TimeoutError:
            self._executors.masters.check(self._master)
            return False
        except Exception as error:
            raise self._named(error) from error
        return self._slots_max is not None

    @property
    def slots_max(self) -> int:
        assert self._slots_max is not None, "wait_ready comes first"
        return self._slots_max

    def check_room(self, slots: int) -> None:
        limit = slot_limit(self._master, self._settings)
        check_fits(slots, self._slots_max if limit is None and self._is_local else limit, self._master)

    @property
    def driver_host(self) -> str:
        return self._settings.get("spark.driver.host") or self._of_context("spark.driver.host")

    @property
    def listen_host(self) -> str:
        """Where Spark's driver listens, too; the executors may reach it under another address."""
        given = self._settings.get("spark.driver.bindAddress") or self._settings.get("spark.driver.host")
        return given or self._of_context("spark.driver.bindAddress", self.driver_host)

    def _of_context(self, name: str, default: str | None = None) -> str:
        return str(self._started.result().getConf().get(name, default))

    @property
    def encryption_asked_by(self) -> str | None:
        """On a local master, all on this machine, only the user's settings; else spark-defaults.conf, too."""
        if self._is_local:
            return encryption_asked_by(self._settings)
        return encryption_asked_by(dict(self._started.result().getConf().getAll()))

    def doing(self, parallelism: int, has_slots: bool) -> str:
        if not self._started.done():
            return "Spark's JVM starts"
        return RESTORING if has_slots else f"Spark starts {parallelism} Python processes{self._compiling}"

    def has_room(self, slots: int) -> bool:
        """Whether there are so many slots now. On a master that can grow they may be gone a moment later."""
        if not self._started.done():
            return False
        try:
            return slots_now(self._started.result()) >= slots
        except (Py4JError, OSError, OnceflowError):  # Spark is gone: the slots that run will say so
            return False

    def launch(
        self,
        launch: SlotLaunch,
        parallelism: int,
        on_ended: Callable[[OnceflowError | None], None],
        on_waiting: Callable[[str], None],
    ) -> Callable[[], None]:
        folder = self._modules.name if self._modules.exists() else None
        function = SlotFunction(launch, self._packed, folder)
        stage = BarrierStage(launch.number, function, parallelism)
        self._stages.add(stage)

        def run_stage() -> None:
            try:
                # Here and not on the driver's thread: while the JVM comes up there is a context that can't
                # be used yet.
                context = self._started.result()
                self._executors.begin()
                stage.run(context, self._executors, self._can_grow, on_waiting)
            except Exception as error:
                on_ended(self._named(error))
            else:
                on_ended(None)
            finally:
                self._stages.discard(stage)

        def cancel() -> None:
            stage.release()
            if self._started.done() and self._started.exception() is None:
                stage.cancel(self._started.result())

        threading.Thread(target=run_stage, name="onceflow-stage", daemon=True).start()
        return cancel

    def _named(self, error: Exception) -> OnceflowError:
        """What a failed stage means to the driver."""
        if isinstance(error, OnceflowError):
            return error
        if self._is_gone(error):
            return Fatal(
                f"Spark on {self._master} has ended under the job (its JVM was killed, or the master is away "
                "or has dropped it): run the same command again"
            )
        return error_of(str(error), lambda: failed_on(self._started.result(), str(error)))

    def _is_gone(self, error: Exception) -> bool:
        """The JVM has ended, or its context was stopped, as a cluster's master does that drops the job."""
        has_ended = self._own_jvm is not None and self._own_jvm.poll() is not None
        if has_ended or isinstance(error, Py4JNetworkError | OSError):
            return True
        try:
            return bool(jvm_context(self._started.result()).isStopped())
        except (Py4JError, OSError, OnceflowError):
            return True

    def close(self) -> None:
        self._is_closing.set()
        for stage in list(self._stages):
            stage.release()
        try:
            if not self._started.done() and self._own_jvm is not None:
                self._abandon()
            with contextlib.suppress(Py4JError, OSError, OnceflowError), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of a JVM that has ended already
                self._started.result().stop()
        finally:
            self._starter.shutdown()
            self._files.cleanup()

    def _abandon(self) -> None:
        """End a JVM that is not up yet: it may be waiting for a master that is away, for a minute."""
        self._own_jvm.terminate()
        with contextlib.suppress(OnceflowError):
            self._started.result().stop()
        SparkContext._gateway = SparkContext._jvm = None  # or the next job of this process would ask it
