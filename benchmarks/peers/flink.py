"""Apache Flink 2.2 in Java, DataStream and SQL: one JVM with a mini cluster, tuned, exactly-once.

Tuned as its documents advise for throughput: object reuse, state on the heap (the fastest backend; the
state fits), polls of 10,000 records and fetches of 8 MiB, a producer that lingers 20 ms for batches of
256 KiB; the DataStream job reads its three fields with Jackson's streaming parser. Checkpoints each second,
Kafka transactions committed with them. Parallelism 1: on two cores a second subtask costs Flink more CPU
per record than it gains, since fetcher, compiler and collector fill the second core anyway.
`flink-rocksdb` is the DataStream job with its RocksDB backend: 512 MB of managed memory, as many as ours
takes for its state with RocksDB, and incremental checkpoints.
Bounded disorder of 2 s, watermarks per partition. The jars are those of the PyPI package apache-flink; 2.2.0,
since no Kafka connector is released for 2.3.
"""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.environments import Environment, class_path, compile_java, install
from benchmarks.peers.peer import FOLDER, MAIN, Assignment, Launch, Peer, Say
from onceflow.runtime.environment.java import find_java

ENVIRONMENT = Environment(
    "flink",
    packages=("apache-flink==2.2.0", "setuptools<81"),
    jars_alone=(
        "org.apache.flink:flink-sql-connector-kafka:5.0.0-2.2",
        "com.fasterxml.jackson.core:jackson-core:2.20.0",
    ),
)
PARALLELISM = 1
OPTIONS = (
    "-Xmx4g",
    "--add-opens=java.base/java.util=ALL-UNNAMED",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
)


def _prepare(main_class: str, backend: str = "hashmap") -> Callable[[Say], Callable[[Assignment], Launch]]:
    def prepare(say: Say) -> Callable[[Assignment], Launch]:
        installed = install(ENVIRONMENT, say)
        jars = [*installed.package_jars("pyflink/lib/*.jar"), *installed.jars()]
        classes = compile_java([FOLDER / "java" / f"{main_class}.java"], jars, main_class)
        command = [find_java().executable, *OPTIONS, "-cp", class_path([classes, *jars]), main_class]

        def launch(assignment: Assignment) -> Launch:
            checkpoints = (assignment.folder / "checkpoints").as_uri()
            arguments = [assignment.bootstrap_servers, assignment.input, assignment.output, checkpoints]
            return Launch([*command, *arguments, str(PARALLELISM), backend])

        return launch

    return prepare


PEERS = (
    Peer("flink", "Flink 2.2 DataStream, Java", "exactly-once", (MAIN,), _prepare("FlinkTotals")),
    Peer(
        "flink-rocksdb",
        "Flink 2.2 DataStream with RocksDB",
        "exactly-once",
        (MAIN,),
        _prepare("FlinkTotals", "rocksdb"),
    ),
    Peer("flink-sql", "Flink 2.2 SQL", "exactly-once", (MAIN,), _prepare("FlinkSqlTotals")),
)
