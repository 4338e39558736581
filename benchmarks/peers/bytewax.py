"""Bytewax 0.21, one worker, recovery store with snapshots each second, at least once.

`fold_window` without ordering, event time with 2 s of waiting. Event time is kept per key here, so a key's
last window would stay open for ever: the source reads to the end of the topic and the end closes what is
open, as its documents do it for replays. Batches of 1,000 (its documents' size): larger ones gave wrong
windows. The clock it measures waiting by is constant, else a backlog is late by the wall clock. 1,000,000
records are enough: its rate does not change with more.
"""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.environments import Environment, install
from benchmarks.peers.peer import FOLDER, MAIN, Assignment, Launch, Peer, Say

ENVIRONMENT = Environment("bytewax", packages=("bytewax==0.21.1", "confluent-kafka"))


def _prepare(say: Say) -> Callable[[Assignment], Launch]:
    installed = install(ENVIRONMENT, say)

    def launch(assignment: Assignment) -> Launch:
        command = [installed.python, FOLDER / "python" / "bytewax_job.py", assignment.bootstrap_servers]
        return Launch([*command, assignment.input, assignment.output, assignment.folder])

    return launch


PEERS = (Peer("bytewax", "Bytewax 0.21", "at-least-once", (MAIN,), _prepare, records_max={MAIN: 1_000_000}),)
