"""`onceflow run FILE`: run a job until it ends; run again after any crash, it goes on."""

from __future__ import annotations

import logging
from typing import Annotated, NoReturn

import typer

from onceflow.cli.job_options import (
    AcceptDuplicatesOption,
    AlignmentTimeoutOption,
    AllowDroppedStateOption,
    BarriersOption,
    CheckpointTimeoutOption,
    ConfOption,
    DebugOption,
    DrySinkOption,
    GuaranteeOption,
    IncrementalOption,
    InFlightOption,
    MasterOption,
    RestartOption,
    StartFromOption,
    StateBackendOption,
    StateMemoryOption,
    UnalignedOption,
    UntilOption,
    given_barriers,
)
from onceflow.cli.load import load_job
from onceflow.cli.params import ParamOption, ParamsFileOption, given_params
from onceflow.cli.report import reporter_for
from onceflow.cli.spark_files import ArchivesOption, PyFilesOption, let_import, with_files
from onceflow.cli.start_options import (
    MapUidOption,
    RekeyOption,
    ResetOffsetsOption,
    given_changes,
)
from onceflow.runtime.api.graph_builder import JobGraphBuilder
from onceflow.runtime.api.job import run_job
from onceflow.runtime.api.run_options import DEFAULT_INTERVAL, run_options
from onceflow.runtime.checkpoint.events import Outcome
from onceflow.runtime.driver.options import DEFAULT_MASTER
from onceflow.runtime.driver.result import JobResult
from onceflow.runtime.errors import OptionError, UsageError
from onceflow.runtime.graph.job_graph import JobGraph
from onceflow.runtime.report import Reporter
from onceflow.sinks.print import PrintSink

WITHOUT_LAST_CHECKPOINT = 3
"""Exit code: ended on request; the next run reads again what came after the last completed checkpoint."""

app = typer.Typer(
    help="Run a job until it ends. Run again after any crash: it goes on.",
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.command(context_settings={"allow_extra_args": False})
def run(
    target: Annotated[
        str, typer.Argument(metavar="JOB", help="FILE.py, FILE.py:attribute or module:attribute.")
    ],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="-- ARGUMENTS", help="What follows -- goes to the job's build(argv)."),
    ] = None,
    checkpoint_dir: Annotated[str, typer.Option(help="Folder or URL of the job's checkpoints.")] = ...,  # type: ignore[assignment]
    master: MasterOption = DEFAULT_MASTER,
    parallelism: Annotated[int | None, typer.Option(help="Slots. Default: what the master offers.")] = None,
    checkpoint_interval: Annotated[str, typer.Option(help='As in "1 s" or "100 ms".')] = DEFAULT_INTERVAL,
    checkpoint_timeout: CheckpointTimeoutOption = "10 min",
    retained: Annotated[int, typer.Option(help="Completed checkpoints to keep.")] = 3,
    slot_timeout: Annotated[str, typer.Option(help="A slot silent for so long counts as lost.")] = "30 s",
    guarantee: GuaranteeOption = "exactly-once",
    barriers: BarriersOption = "aligned",
    unaligned: UnalignedOption = False,
    alignment_timeout: AlignmentTimeoutOption = None,
    in_flight: InFlightOption = "1 s",
    state_backend: StateBackendOption = "heap",
    state_memory: StateMemoryOption = None,
    incremental: IncrementalOption = None,
    restart: RestartOption = "exponential",
    start_from: StartFromOption = None,
    accept_duplicates_after: AcceptDuplicatesOption = None,
    allow_dropped_state: AllowDroppedStateOption = False,
    map_uid: MapUidOption = None,
    reset_offsets: ResetOffsetsOption = None,
    rekey: RekeyOption = None,
    dry_sink: DrySinkOption = None,
    until: UntilOption = None,
    conf: ConfOption = None,
    tls: Annotated[bool, typer.Option("--tls", help="Encrypt what driver and slots say.")] = False,
    param: ParamOption = None,
    params_file: ParamsFileOption = None,
    archives: ArchivesOption = None,
    py_files: PyFilesOption = None,
    control_port: Annotated[int, typer.Option(help="The driver's port for slots. 0: any free one.")] = 0,
    metrics_port: Annotated[int | None, typer.Option(help="Serve Prometheus metrics on this port.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
    debug: DebugOption = False,
) -> None:
    """Exit code 0: finished, or stopped after a last checkpoint; 1: failed; 2: wrong use; 3: ended on
    request, but without a last checkpoint."""
    if debug:
        show_logs()
    settings = with_files(_settings(conf or []), master, archives, py_files)
    let_import(settings)
    loaded = load_job(target, arguments or [])
    options = run_options(
        checkpoint_dir,
        master=master,
        parallelism=parallelism,
        checkpoint_interval=checkpoint_interval,
        checkpoint_timeout=checkpoint_timeout,
        retained=retained,
        slot_timeout=slot_timeout,
        guarantee=guarantee,
        barriers=given_barriers(barriers, unaligned),
        alignment_timeout=alignment_timeout,
        in_flight=in_flight,
        state_backend=state_backend,
        state_memory=state_memory,
        incremental=incremental,
        restart=restart,
        spark_conf=settings,
        control_port=control_port,
        start_from=int(start_from) if start_from and start_from.isdecimal() else start_from,
        accept_duplicates_after=accept_duplicates_after,
        allow_dropped_state=allow_dropped_state,
        **given_changes(map_uid or [], reset_offsets or [], rekey or []),
        until=until,
        tls=tls,
        params=given_params(param or [], params_file, loaded.job.params),
    )
    graph = _graph(loaded.job, dry_sink)
    result = run_job(graph, options, _reporter(graph, as_json, metrics_port), loaded.program)
    if result.outcome not in (Outcome.FINISHED, Outcome.STOPPED):
        _end_badly(result, checkpoint_dir, debug)


def _graph(job: JobGraphBuilder, dry_sink: str | None) -> JobGraph:
    if dry_sink is None:
        return job.build()
    # Here and not above: most runs are no dry ones.
    from onceflow.cli.dry_run import dry_run

    return dry_run(job.build(), dry_sink)


def _reporter(graph: JobGraph, as_json: bool, metrics_port: int | None) -> Reporter:
    reporter = reporter_for(as_json, any(isinstance(node.sink, PrintSink) for node in graph.sinks()))
    if metrics_port is None:
        return reporter
    # Here and not above: most runs serve no metrics.
    from onceflow.cli.metrics import Metrics

    return Metrics(reporter, metrics_port)


def _end_badly(result: JobResult, checkpoint_dir: str, debug: bool) -> NoReturn:
    """Say why, and what to do; then the exit code."""
    if result.is_refused:
        raise UsageError(result.reason)
    if result.outcome is Outcome.CANCELLED:
        typer.echo(f"onceflow: ended without a last checkpoint: {result.reason}", err=True)
        raise typer.Exit(WITHOUT_LAST_CHECKPOINT)
    if debug and result.detail:
        typer.echo(result.detail, err=True)
    # Here and not above: most runs end well.
    from onceflow.cli.closing import closing_lines

    for line in closing_lines(result, checkpoint_dir):
        typer.echo(f"onceflow: {line}", err=True)
    raise typer.Exit(1)


def show_logs() -> None:
    """What onceflow logs, on standard error: Kafka's clients' doings, and what the JVM says at each start."""
    shown = logging.StreamHandler()
    shown.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logger = logging.getLogger("onceflow")
    logger.addHandler(shown)
    logger.setLevel(logging.INFO)


def _settings(pairs: list[str]) -> dict[str, str]:
    settings = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise OptionError(f"--conf {pair!r}: write NAME=VALUE")
        settings[name] = value
    return settings
