"""onceflow itself: the installed command, its defaults, exactly-once.

The main job is examples/windowed_totals.py, as users have it. Checkpoints each second, as for the peers
that commit each second. One slot on `local[1]`; --master and --parallelism of the comparison change that.
CPU is that of the driver, its JVM and the slots.
"""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.peers.peer import MAIN, MAP, PASS_THROUGH, REPOSITORY, WORKLOADS, Assignment, Launch, Peer

_JOBS = {
    MAIN: REPOSITORY / "examples" / "windowed_totals.py",
    PASS_THROUGH: REPOSITORY / "benchmarks" / "jobs" / "pass_through.py",
    MAP: REPOSITORY / "benchmarks" / "jobs" / "mapped.py",
}


def peer(master: str, parallelism: int, options: tuple[str, ...] = ()) -> Peer:
    """`options` go to `onceflow run` as they are."""

    def launch(assignment: Assignment) -> Launch:
        command = [Path(sys.executable).with_name("onceflow"), "run", _JOBS[assignment.workload]]
        command += ["--master", master, "--parallelism", str(parallelism), "--json", *options]
        command += ["--checkpoint-dir", assignment.folder / "checkpoints", "--checkpoint-interval", "1 s"]
        command += ["--", "--bootstrap-servers", assignment.bootstrap_servers]
        command += ["--input", assignment.input, "--output", assignment.output]
        return Launch(command)

    title = f"onceflow, {master}, parallelism {parallelism}"
    return Peer("onceflow", title, "exactly-once", WORKLOADS, lambda say: launch)
