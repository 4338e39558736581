"""Job: the program a user writes, and how it is run: `job.run()` or `onceflow run`."""

from __future__ import annotations

import datetime as dt
import html
import os
import re
from collections.abc import Mapping
from typing import Any

from onceflow.runtime.api.checkpoint_folder import checkpoint_folder
from onceflow.runtime.api.graph_builder import JobGraphBuilder
from onceflow.runtime.api.reporter_here import reporter_here
from onceflow.runtime.api.run_options import DEFAULT_INTERVAL, run_options
from onceflow.runtime.api.run_signals import RunSignals, run_signals
from onceflow.runtime.api.until import ended_at
from onceflow.runtime.arguments import PathText
from onceflow.runtime.checkpoint.events import Outcome
from onceflow.runtime.checkpoint.job_phase import JobPhase
from onceflow.runtime.checkpoint.options import IN_FLIGHT_MS
from onceflow.runtime.checkpoint.store_url import check_folder
from onceflow.runtime.clock import SystemClock
from onceflow.runtime.driver.driver import JobDriver
from onceflow.runtime.driver.options import DEFAULT_MASTER, RunOptions, check_slots
from onceflow.runtime.driver.result import JobResult
from onceflow.runtime.environment.program import NO_PROGRAM, Program, running_program
from onceflow.runtime.environment.running_jobs import StartingJob
from onceflow.runtime.errors import JobFailedError, OnceflowError, OptionError, UsageError
from onceflow.runtime.explained_calls import explained_methods
from onceflow.runtime.functions.resolve import resolve
from onceflow.runtime.graph.job_graph import JobGraph
from onceflow.runtime.graph.plan import describe, warnings
from onceflow.runtime.graph.plan_display import as_html, as_markdown
from onceflow.runtime.hosts.launch import SlotLauncher
from onceflow.runtime.hosts.local import LocalLauncher
from onceflow.runtime.hosts.spark.slot_limit import check_fits, check_master, slot_limit
from onceflow.runtime.report import JobProgress, Reporter

HOST_WAIT_S = 1.0
_THREADS = re.compile(r"threads(?:\[(\d+)\])?")


@explained_methods
class Job(JobGraphBuilder):
    """A job: sources, what is done with their records, sinks. Nothing runs until `run`.

    The graph that exists before it runs can be printed (`onceflow plan`), is checked against schemas
    before anything starts, and is what the slots get.
    """

    def _repr_html_(self) -> str:
        """How a notebook shows it: the plan, or what is missing."""
        try:
            return as_html(describe(self.build()))
        except OnceflowError as error:
            return f"<p>job <b>{self.name}</b>, which can't be run yet: {html.escape(str(error))}</p>"

    def _repr_markdown_(self) -> str:
        """The same, for what shows no HTML."""
        try:
            return as_markdown(describe(self.build()))
        except OnceflowError as error:
            return f"job **{self.name}**, which can't be run yet: {error}"

    def run(  # noqa: PLR0913 - the options of `onceflow run` that a program decides
        self,
        checkpoint_dir: PathText | None = None,
        *,
        master: str | None = None,
        parallelism: int | None = None,
        checkpoint_interval: str | int = DEFAULT_INTERVAL,
        guarantee: str = "exactly-once",
        barriers: str = "aligned",
        alignment_timeout: str | int | None = None,
        in_flight: str | int = IN_FLIGHT_MS,
        state_backend: str = "heap",
        state_memory: str | int | None = None,
        incremental: bool | None = None,
        restart: str = "exponential",
        start_from: int | PathText | None = None,
        accept_duplicates_after: int | None = None,
        allow_dropped_state: bool = False,
        map_uid: Mapping[str, str] | None = None,
        reset_offsets: Mapping[str, Any] | None = None,
        rekey: Mapping[str, Any] | None = None,
        until: str | dt.datetime | None = None,
        tls: bool = False,
        params: Mapping[str, Any] | None = None,
        storage_options: Mapping[str, Any] | None = None,
        reporter: Reporter | None = None,
    ) -> JobResult:
        """Run to the end in this process: a script, a notebook, what spark-submit runs; as `onceflow run`.

        Goes on in `checkpoint_dir` (else a temporary folder), or from checkpoint or savepoint `start_from`
        (docs/savepoints.md, as all up to `until`). `master`: Spark's, `threads[N]`; None: spark-submit's,
        or `local[2]`. Ctrl-C and SIGTERM stop it after a checkpoint. Raises UsageError, JobFailedError.
        """
        program = running_program()
        chosen, spark_conf = _chosen(master)
        with checkpoint_folder(checkpoint_dir, chosen) as folder:
            options = run_options(
                folder,
                master=chosen,
                parallelism=parallelism,
                spark_conf=spark_conf,
                checkpoint_interval=checkpoint_interval,
                guarantee=guarantee,
                barriers=barriers,
                alignment_timeout=alignment_timeout,
                in_flight=in_flight,
                state_backend=state_backend,
                state_memory=state_memory,
                incremental=incremental,
                restart=restart,
                start_from=start_from,
                accept_duplicates_after=accept_duplicates_after,
                allow_dropped_state=allow_dropped_state,
                map_uid=(map_uid or {}).items(),
                reset_offsets=reset_offsets or {},
                rekey=rekey,
                until=until,
                tls=tls,
                params=params,
                storage_options=storage_options,
            )
            result = run_job(self.build(), options, reporter or reporter_here(), program)
        return self._over(result, checkpoint_dir)

    def _over(self, result: JobResult, checkpoint_dir: PathText | None) -> JobResult:
        """A run has ended: who collected its rows hears how, and then who called it."""
        for rows in self.collected:
            rows.on_end(result.outcome)
        _raise_if_failed(self.name, result, checkpoint_dir)
        return result


def run(job: Job, checkpoint_dir: PathText | None = None, **options: Any) -> JobResult:
    """`onceflow.run(job, ...)` is `job.run(...)`."""
    return job.run(checkpoint_dir, **options)


def _check_master(master: str) -> None:
    if not _THREADS.fullmatch(master):
        check_master(master, os.environ)


def _raise_if_failed(job: str, result: JobResult, checkpoint_dir: PathText | None) -> None:
    if result.is_refused:
        raise UsageError(result.reason)
    if result.outcome not in (Outcome.FAILED, Outcome.FENCED):
        return
    again, last = "", result.last_checkpoint_id
    is_programs = result.cause == UsageError.__name__  # the same program would be refused again
    if checkpoint_dir is not None and last is not None and not is_programs:
        again = f"; last completed checkpoint: {last} in {checkpoint_dir}: run again, it goes on from there"
    raise JobFailedError(f"job {job!r} {result.outcome.value}: {result.reason}{again}")


def _chosen(master: str | None) -> tuple[str, Mapping[str, str]]:
    """The master to run on, checked, and the settings that spark-submit was given."""
    submitted, settings = _submitted(master)
    _check_master(master or submitted)
    return master or submitted, settings


def _submitted(master: str | None) -> tuple[str, Mapping[str, str]]:
    """The master and Spark's settings that spark-submit was given, if it runs this program."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ or _THREADS.fullmatch(master or ""):
        return DEFAULT_MASTER, {}
    # Here and not above: it imports PySpark.
    from onceflow.runtime.hosts.spark.submitted import submitted_settings

    return submitted_settings()


def run_job(
    graph: JobGraph, options: RunOptions, reporter: Reporter, program: Program = NO_PROGRAM
) -> JobResult:
    """Run a graph to its end. `program`: the user's, of which the slots need what the graph refers to."""
    if options.parallelism is not None:
        check_slots(options.parallelism, graph.max_parallelism)
    resolve(graph.params, options.params)  # what is missing is said before anything starts
    check_folder(options.checkpoint_dir, options.storage_options)
    graph = graph if options.until is None else ended_at(graph, options.until)
    with StartingJob.announced(graph.job, options.checkpoint_dir), run_signals() as signals:
        launcher = _launcher(graph, options, program)
        try:
            reporter.event("job_started", {"job": graph.job, "master": options.master})
            for reason in warnings(graph, options.state.backend):
                reporter.event("warning", {"reason": reason})
            if not _wait_for_host(launcher, graph.job, signals, reporter):
                return _stopped_early(reporter)
            driver = JobDriver(graph, options, launcher, SystemClock(), reporter)
            signals.deliver_to(driver)
            return driver.run(launcher.driver_host, launcher.listen_host)
        finally:
            launcher.close()
            reporter.close()


def _wait_for_host(launcher: SlotLauncher, job: str, signals: RunSignals, reporter: Reporter) -> bool:
    """False: a signal came first."""
    began_ms = (clock := SystemClock()).monotonic_ms()
    while not signals.was_sent:
        if launcher.wait_ready(HOST_WAIT_S):
            return True
        seconds = (clock.monotonic_ms() - began_ms) / 1000
        wait = f"{launcher.coming_up()}, since {seconds:.0f} s"
        reporter.progress(JobProgress(job, JobPhase.STARTING.value, waiting=(wait,)))
    return False


def _stopped_early(reporter: Reporter) -> JobResult:
    """Nothing was opened, and nothing is to be kept."""
    result = JobResult(Outcome.STOPPED, "on request, before the host was up", None)
    fields = {"outcome": result.outcome.value, "reason": result.reason, "checkpoint_id": None}
    reporter.event("job_finished", {**fields, "late_records": 0, "restarts": 0})
    return result


def _launcher(graph: JobGraph, options: RunOptions, program: Program) -> SlotLauncher:
    threads = _THREADS.fullmatch(options.master)
    if threads:
        if (slots := int(threads[1] or 1)) == 0:
            raise OptionError(f"--master {options.master} has no slot: write threads[1], or more")
        return LocalLauncher(slots)
    check_master(options.master, os.environ)
    check_fits(options.parallelism or 1, slot_limit(options.master, options.spark_conf), options.master)
    # Here and not above: the JVM's client is slow to import and a job on threads needs none of it.
    from onceflow.runtime.hosts.spark.runner import SparkLauncher

    return SparkLauncher(options.master, graph, options.spark_conf, program, options.parallelism)
