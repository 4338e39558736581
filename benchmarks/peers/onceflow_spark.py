"""Spark Structured Streaming with onceflow's source and sink instead of its own: exactly once.

The same operators, cores, memory and collector as the peer `spark`, and the backlog in one batch as there;
on the installed PySpark, since no package is needed. Python workers come from our daemon, as the page on
Structured Streaming recommends. Its output waits until the batch is complete.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from benchmarks.peers.peer import MAIN, PASS_THROUGH, REPOSITORY, Assignment, Launch, Peer, Say

PROGRAMS = {
    MAIN: REPOSITORY / "examples" / "spark_windowed_totals.py",
    PASS_THROUGH: REPOSITORY / "benchmarks" / "jobs" / "spark_pass_through.py",
}


def _prepare(say: Say) -> Callable[[Assignment], Launch]:
    def launch(assignment: Assignment) -> Launch:
        command = [sys.executable, PROGRAMS[assignment.workload]]
        command += ["--bootstrap-servers", assignment.bootstrap_servers]
        command += ["--input", assignment.input, "--output", assignment.output]
        command += ["--checkpoint", assignment.folder / "checkpoint"]
        command += ["--staging", assignment.folder / "staging"]
        java = "--driver-memory 4g --driver-java-options -XX:+UseParallelGC pyspark-shell"
        return Launch(
            command,
            {
                "PYSPARK_PYTHON": sys.executable,
                "PYSPARK_SUBMIT_ARGS": java,
                "SPARK_LOCAL_IP": "127.0.0.1",
            },
        )

    return launch


PEERS = (
    Peer(
        "onceflow-spark",
        "Spark Structured Streaming with onceflow's source and sink",
        "exactly-once",
        (MAIN, PASS_THROUGH),
        _prepare,
    ),
)
