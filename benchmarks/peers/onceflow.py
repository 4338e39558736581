"""onceflow itself: the installed command, its defaults, exactly-once.

The main job is examples/windowed_totals.py, as users have it; `onceflow-python` is the same with a Python
function for each record, to compare with engines that run one, and `onceflow-rocksdb` has state that may go
to disk. Checkpoints each second, as for the peers that commit each second. One slot on `local[1]`; --master
and --parallelism of the comparison change that.
CPU is that of the driver, its JVM and the slots.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks.peers.peer import MAIN, MAP, PASS_THROUGH, REPOSITORY, WORKLOADS, Assignment, Launch, Peer

_JOBS = {
    MAIN: REPOSITORY / "examples" / "windowed_totals.py",
    PASS_THROUGH: REPOSITORY / "benchmarks" / "jobs" / "pass_through.py",
    MAP: REPOSITORY / "benchmarks" / "jobs" / "mapped.py",
}
_SECURED_JOBS = {
    MAIN: REPOSITORY / "benchmarks" / "jobs" / "secured_totals.py",
    PASS_THROUGH: _JOBS[PASS_THROUGH],
}
"""Jobs that can be told how to reach a listener that encrypts or wants a password."""
_PYTHON_JOBS = {MAIN: REPOSITORY / "benchmarks" / "jobs" / "mapped_totals.py"}


def peer(master: str, parallelism: int, options: tuple[str, ...] = ()) -> Peer:
    """`options` go to `onceflow run` as they are."""
    title = f"onceflow, {master}, parallelism {parallelism}"
    launch = _launch(_JOBS, master, parallelism, options)
    secured = tuple(_SECURED_JOBS)
    return Peer("onceflow", title, "exactly-once", WORKLOADS, lambda say: launch, secured_workloads=secured)


def _launch(
    jobs: Mapping[str, Path], master: str, parallelism: int, options: tuple[str, ...]
) -> Callable[[Assignment], Launch]:
    def launch(assignment: Assignment) -> Launch:
        job, secured = jobs[assignment.workload], []
        if assignment.security:
            settings = assignment.folder / "client.json"  # a password has no place on a command line
            settings.write_text(json.dumps(dict(assignment.security)), encoding="utf-8")
            job, secured = _SECURED_JOBS[assignment.workload], ["--settings", settings]
        command = [Path(sys.executable).with_name("onceflow"), "run", job]
        command += ["--master", master, "--parallelism", str(parallelism), "--json", *options]
        command += ["--checkpoint-dir", assignment.folder / "checkpoints", "--checkpoint-interval", "1 s"]
        command += ["--", "--bootstrap-servers", assignment.bootstrap_servers]
        command += ["--input", assignment.input, "--output", assignment.output]
        return Launch([*command, *secured])

    return launch


PEERS = (
    Peer(
        "onceflow-python",
        "onceflow with a Python function, local[1]",
        "exactly-once",
        (MAIN,),
        lambda say: _launch(_PYTHON_JOBS, "local[1]", 1, ()),
    ),
    Peer(
        "onceflow-rocksdb",
        "onceflow with --state-backend rocksdb, local[1]",
        "exactly-once",
        (MAIN,),
        lambda say: _launch(_JOBS, "local[1]", 1, ("--state-backend", "rocksdb", "--state-memory", "512MB")),
    ),
)
