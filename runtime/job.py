"""Job: the program a user writes, and how it is run: `job.run()` or `onceflow run`."""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from onceflow.runtime.checkpoint.options import CheckpointOptions
from onceflow.runtime.clock import SystemClock
from onceflow.runtime.driver import JobDriver, JobResult
from onceflow.runtime.errors import OptionError
from onceflow.runtime.graph import DEFAULT_MAX_PARALLELISM, JobGraph
from onceflow.runtime.launch import SlotLauncher
from onceflow.runtime.local import LocalLauncher
from onceflow.runtime.options import (
    DEFAULT_MASTER,
    Guarantee,
    RunOptions,
    absolute_url,
    restart_strategy,
)
from onceflow.runtime.program import NO_PROGRAM, Program, running_program
from onceflow.runtime.report import Reporter, Silent
from onceflow.runtime.stream import JobGraphBuilder
from onceflow.runtime.types import duration_ms

DEFAULT_INTERVAL = "1 s"
_LOCAL = re.compile(r"local(?:\[(\d+)\])?")
_THREADS = re.compile(r"threads(?:\[(\d+)\])?")


class Job(JobGraphBuilder):
    """A job: sources, what is done with their records, sinks. Nothing runs until `run`.

    The graph that exists before it runs can be printed (`onceflow plan`), is checked against schemas
    before anything starts, and is what the slots get.
    """

    def __init__(self, name: str, max_parallelism: int = DEFAULT_MAX_PARALLELISM) -> None:
        super().__init__(name, max_parallelism)

    def run(
        self,
        checkpoint_dir: str,
        *,
        master: str = DEFAULT_MASTER,
        parallelism: int | None = None,
        checkpoint_interval: str | int = DEFAULT_INTERVAL,
        guarantee: str = "exactly-once",
        restart: str = "exponential",
        reporter: Reporter | None = None,
    ) -> JobResult:
        """Run to the end in this process; the same as `onceflow run` with these options.

        Goes on from the latest completed checkpoint in `checkpoint_dir`. `master`: as Spark names it, or
        `threads[N]` for slots in this process without Spark. Ctrl-C and SIGTERM stop it cleanly after a
        last checkpoint. Raises UsageError for what is wrong before it starts.
        """
        options = run_options(
            checkpoint_dir,
            master=master,
            parallelism=parallelism,
            checkpoint_interval=checkpoint_interval,
            guarantee=guarantee,
            restart=restart,
        )
        return run_job(self.build(), options, reporter or Silent(), running_program())


def run_options(  # noqa: PLR0913 - one for each option of `onceflow run`
    checkpoint_dir: str,
    *,
    master: str = DEFAULT_MASTER,
    parallelism: int | None = None,
    checkpoint_interval: str | int = DEFAULT_INTERVAL,
    checkpoint_timeout: str | int = "10 min",
    retained: int = 3,
    slot_timeout: str | int = "30 s",
    guarantee: str = "exactly-once",
    restart: str = "exponential",
    spark_conf: Mapping[str, str] | None = None,
    start_from: int | None = None,
) -> RunOptions:
    """Options as people write them, checked. Raises OptionError naming the option."""
    if parallelism is not None and parallelism < 1:
        raise OptionError(f"parallelism={parallelism}: at least 1 slot is needed")
    return RunOptions(
        checkpoint_dir=absolute_url(checkpoint_dir),
        master=master,
        parallelism=parallelism,
        guarantee=Guarantee.parse(guarantee),
        checkpoints=CheckpointOptions(
            interval_ms=duration_ms(checkpoint_interval, "checkpoint_interval"),
            timeout_ms=duration_ms(checkpoint_timeout, "checkpoint_timeout"),
            retained=retained,
            restart=restart_strategy(restart),
        ),
        slot_timeout_ms=duration_ms(slot_timeout, "slot_timeout"),
        spark_conf=spark_conf or {},
        start_from=start_from,
    )


def run_job(
    graph: JobGraph, options: RunOptions, reporter: Reporter, program: Program = NO_PROGRAM
) -> JobResult:
    """Run a graph to its end. `program`: the user's, of which the slots need what the graph refers to."""
    if options.parallelism is not None and options.parallelism > graph.max_parallelism:
        raise OptionError(
            f"parallelism={options.parallelism} is more than the job's max_parallelism, which is "
            f"{graph.max_parallelism}"
        )
    launcher = _launcher(graph, options, program)
    try:
        driver = JobDriver(graph, options, launcher, SystemClock(), reporter)
        reporter.event("job_started", {"job": graph.job, "master": options.master})
        with _signals(driver):
            return driver.run(launcher.driver_host)
    finally:
        launcher.close()
        reporter.close()


def _launcher(graph: JobGraph, options: RunOptions, program: Program) -> SlotLauncher:
    threads = _THREADS.fullmatch(options.master)
    if threads:
        return LocalLauncher(int(threads[1] or 1))
    local = _LOCAL.fullmatch(options.master)
    if local and (options.parallelism or 1) > (cores := int(local[1] or 1)):
        # Spark itself would look for more cores every second, for 40 s, before it says so.
        raise OptionError(
            f"parallelism={options.parallelism} needs as many slots at once, {options.master} has {cores}: "
            f"use --master 'local[{options.parallelism}]', or less parallelism"
        )
    # Here and not above: the JVM's client is slow to import and a job on threads needs none of it.
    from onceflow.runtime.spark.runner import SparkLauncher

    return SparkLauncher(options.master, graph, options.spark_conf, program)


@contextmanager
def _signals(driver: JobDriver) -> Iterator[None]:
    """SIGINT and SIGTERM: a last checkpoint, then the end; a second one: the end at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    asked = False

    def stop(signum: int, frame: Any) -> None:
        nonlocal asked
        if asked:
            driver.request_cancel(f"stopped at once by a second {signal.Signals(signum).name}")
        else:
            asked = True
            driver.request_stop()

    previous = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
