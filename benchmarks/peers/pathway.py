"""Pathway 0.33, one worker thread, its input log kept each second, at least once (its free edition).

Tumbling windows with `exactly_once_behavior(shift=2 s)`: one final row for each window, 2 s after its end in
event time. The engine is Rust; its persistence keeps what was read (operator snapshots need a licence key).
It has no watermark per partition, so a partition that is read ahead closes the windows of the others.
"""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.environments import Environment, install
from benchmarks.peers.peer import FOLDER, MAIN, Assignment, Launch, Peer, Say

ENVIRONMENT = Environment("pathway", packages=("pathway==0.33.0",))


def _prepare(say: Say) -> Callable[[Assignment], Launch]:
    installed = install(ENVIRONMENT, say)

    def launch(assignment: Assignment) -> Launch:
        command = [installed.python, FOLDER / "python" / "pathway_job.py", assignment.bootstrap_servers]
        command += [assignment.input, assignment.output, assignment.folder]
        return Launch(command, {"PATHWAY_THREADS": "1"})

    return launch


PEERS = (Peer("pathway", "Pathway 0.33", "at-least-once", (MAIN,), _prepare, records_max={MAIN: 2_000_000}),)
