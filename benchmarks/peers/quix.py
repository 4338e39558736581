"""Quix Streams 3.28, one process, exactly-once, commits each second.

As its documents show it for a key that the topic does not have: `group_by` (through a repartition topic), a
tumbling window of 10 s with 2 s of grace, closed per partition, `final` results. It has no watermarks: a
partition's time is that of its newest record, so records of the repartition topic that come from a slower
partition of the source are dropped as late, without a word. 1,000,000 records are enough: its rate does not
change with more.
"""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.environments import Environment, install
from benchmarks.peers.peer import FOLDER, MAIN, Assignment, Launch, Peer, Say

ENVIRONMENT = Environment("quix", packages=("quixstreams==3.28.1",))


def _prepare(say: Say) -> Callable[[Assignment], Launch]:
    installed = install(ENVIRONMENT, say)

    def launch(assignment: Assignment) -> Launch:
        command = [installed.python, FOLDER / "python" / "quix_job.py", assignment.bootstrap_servers]
        command += [assignment.input, assignment.output, str(assignment.partitions), assignment.folder]
        return Launch(command)

    return launch


PEERS = (
    Peer(
        "quix",
        "Quix Streams 3.28",
        "exactly-once",
        (MAIN,),
        _prepare,
        records_max={MAIN: 1_000_000},
    ),
)
