"""Spark 4.2 Structured Streaming from Python, tuned, one JVM on `local[2]`, at least once.

The DataFrame API only, so that no Python runs per record. Its Kafka sink has no transactions: when it is
killed while it writes, rows come twice. Tuned: as many shuffle partitions as cores (not 200), a 4 GB driver
with the parallel collector, fetches of 8 MiB, a producer that lingers 20 ms for batches of 256 KiB, and no
limit of records per batch: a backlog in one batch is its fastest way. 4.2.0, since the Kafka package of 4.3.0
is not released. The token provider jar of 4.2.0 is missing; that of a preview serves, it is not used here.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from benchmarks.environments import Environment, install
from benchmarks.peers.peer import FOLDER, MAIN, PASS_THROUGH, Assignment, Launch, Peer, Say
from benchmarks.secured import java_settings

ENVIRONMENT = Environment(
    "spark",
    packages=("pyspark==4.2.0",),
    jars_alone=(
        "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
        "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.1.0-preview1",
        "org.apache.kafka:kafka-clients:3.9.2",
        "org.apache.commons:commons-pool2:2.12.1",
    ),
)
CORES = 2


def _prepare(say: Say) -> Callable[[Assignment], Launch]:
    installed = install(ENVIRONMENT, say)
    jars = ",".join(map(str, installed.jars()))

    def launch(assignment: Assignment) -> Launch:
        command = [installed.python, FOLDER / "python" / "spark_job.py", assignment.workload]
        command += [assignment.bootstrap_servers, assignment.input, assignment.output, assignment.folder]
        settings = assignment.folder / "kafka.json"  # a password has no place on a command line
        security = java_settings(assignment.security) if assignment.security else {}
        settings.write_text(json.dumps(security), encoding="utf-8")
        return Launch(
            [*command, jars, str(CORES), settings],
            {"PYSPARK_PYTHON": str(installed.python), "SPARK_LOCAL_IP": "127.0.0.1"},
        )

    return launch


PEERS = (
    Peer(
        "spark",
        "Spark 4.2 Structured Streaming",
        "at-least-once",
        (MAIN, PASS_THROUGH),
        _prepare,
        secured_workloads=(MAIN, PASS_THROUGH),
    ),
)
