"""PyFlink 2.2 DataStream with Python functions, process mode, exactly-once with checkpoints each second.

The environment is that of flink.py. Process mode, since in loopback mode all functions share one
interpreter. Parallelism 4 in the main job, one subtask for each partition: its timestamp assigner runs behind
the source, so event time is per partition only then. Bundles of 10,000 records and a cache of 200,000 states
in each worker, since a state that is not in it is fetched from the JVM by a call; its defaults were not
measurably slower. The main job gets 100,000 records, for which it takes about three minutes, the map 200,000:
of fewer a large part is the start of its workers, which comes after its first fetch.
"""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.environments import install
from benchmarks.peers.flink import ENVIRONMENT
from benchmarks.peers.peer import FOLDER, MAIN, MAP, Assignment, Launch, Peer, Say
from onceflow.runtime.environment.java import find_java

_PROCESS_MODE = {"_python_worker_execution_mode": "process"}


def _prepare(say: Say) -> Callable[[Assignment], Launch]:
    installed = install(ENVIRONMENT, say)
    jars = ";".join(jar.as_uri() for jar in installed.jars())
    java = find_java().executable.resolve()

    def launch(assignment: Assignment) -> Launch:
        command = [installed.python, FOLDER / "python" / "pyflink_job.py", assignment.workload]
        command += [assignment.bootstrap_servers, assignment.input, assignment.output, assignment.folder]
        path = f"{installed.python.parent}:{java.parent}:/usr/bin:/bin"
        variables = {"JAVA_HOME": str(java.parent.parent), "PATH": path, **_PROCESS_MODE}
        return Launch([*command, jars, installed.python], variables)

    return launch


PEERS = (
    Peer(
        "pyflink",
        "PyFlink 2.2 DataStream",
        "exactly-once",
        (MAIN, MAP),
        _prepare,
        records_max={MAIN: 100_000, MAP: 200_000},
    ),
)
