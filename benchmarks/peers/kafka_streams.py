"""Kafka Streams 4.3, the DSL, one JVM with two stream threads, exactly_once_v2, commits each second.

`groupBy` (through a repartition topic, in a binary format that is cheap to read), windows of 10 s with 2 s of
grace, `suppress` until a window closes (`onWindowClose` walks the whole store cache again and again, and
did not get through). Tuned: polls of 10,000 records, fetches of 8 MiB, a producer that lingers
20 ms for batches of 256 KiB, 256 MiB of state store cache. It has no watermarks: a task's time is that of its
newest record, so records of the repartition topic that come from a slower partition of the source are
dropped as late, without a word. A hand-made watermark through the repartition topic makes it right; that is a
hundred lines of one's own and not what its users run, so it is not measured here.
"""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.environments import Environment, class_path, compile_java, install
from benchmarks.peers.peer import FOLDER, MAIN, Assignment, Launch, Peer, Say
from onceflow.runtime.environment.java import find_java

ENVIRONMENT = Environment(
    "kafka-streams",
    jars=("org.apache.kafka:kafka-streams:4.3.0",),
    jars_alone=("org.slf4j:slf4j-nop:1.7.36",),
)
THREADS = 2
MAIN_CLASS = "KafkaStreamsTotals"


def _prepare(say: Say) -> Callable[[Assignment], Launch]:
    jars = install(ENVIRONMENT, say).jars()
    classes = compile_java([FOLDER / "java" / f"{MAIN_CLASS}.java"], jars, MAIN_CLASS)

    def launch(assignment: Assignment) -> Launch:
        command = [find_java().executable, "-Xmx4g", "-cp", class_path([classes, *jars]), MAIN_CLASS]
        command += [assignment.bootstrap_servers, assignment.input, assignment.output]
        return Launch([*command, assignment.folder / "state", str(THREADS)])

    return launch


PEERS = (Peer("kafka-streams", "Kafka Streams 4.3 DSL", "exactly-once", (MAIN,), _prepare),)
