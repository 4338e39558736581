"""Kills: what every sink must survive, before and after each call of its contract.

The job writes two checkpoints of two rows. It is killed at the given call, in a process of its own where the
output is in reach of one, and a new attempt goes on from the last durable manifest.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from onceflow.runtime.contracts import Json, PreCommit, SinkCommitter, SinkWriter
from onceflow.runtime.testing.conformance import quotations
from onceflow.runtime.testing.conformance.played_engine import NOTHING, Attempt, Durable, PlayedSink
from onceflow.runtime.testing.conformance.recorded_calls import CrashError, CrashPoint

ROWS: Mapping[int, Sequence[int]] = {1: (11, 12), 2: (21, 22)}
"""The rows of each checkpoint, as the source gives them again after a restore."""
MANIFEST = "manifest.json"


def runs_of(method: str, is_after: bool, commit: str) -> Sequence[Sequence[CrashPoint]]:
    """The crash points of each run, one for each attempt. `commit`: the method that makes output visible."""
    unfinished = CrashPoint(commit, is_after=False)
    point = CrashPoint(method, is_after)
    if method == "SinkWriter.recover":
        return [[point], [unfinished, point]]
    return [[point], [CrashPoint(method, is_after, nth=2)], [unfinished, point]]


def killed(case: PlayedSink, points: Sequence[CrashPoint]) -> None:
    """The first attempts are killed, each at its point, and one more goes on to the end."""
    for attempt, point in enumerate(points, 1):
        die(case, attempt, point)
        check_what_is_seen(case)
    case.calls.crash_at = None
    last = len(points) + 1
    if case.elsewhere is None:
        run(case, last)
    else:
        case.calls.say(f"attempt {last}, in a new process, goes on to the end")
        case.elsewhere("run_to_the_end", {"attempt": last})
    case.expect([n for rows in ROWS.values() for n in rows], "the job has gone on to its end")


def check_what_is_seen(case: PlayedSink) -> None:
    """Nothing of what is not durable, and nothing twice."""
    durable, seen = durable_of(case), sorted(case.visible())
    case.calls.say(f"checkpoint {durable.checkpoint_id} is durable; a careful reader sees {seen}")
    promised = [
        n for checkpoint_id, rows in ROWS.items() if checkpoint_id <= durable.checkpoint_id for n in rows
    ]
    early = sorted(set(seen) - set(promised))
    assert not early, f"{early} can be seen, and only {promised} are in a durable checkpoint"
    assert len(seen) == len(set(seen)), f"rows are doubled: {seen}"


def die(case: PlayedSink, attempt: int, point: CrashPoint) -> None:
    """An attempt runs until it is killed at this point."""
    where = f"{'after' if point.is_after else 'before'} call {point.nth} of {point.method}"
    case.calls.say(f"attempt {attempt} is to be killed {where}")
    if case.elsewhere is not None:
        arguments: dict[str, Json] = {"attempt": attempt, **asdict(point)}
        assert case.elsewhere("run_until_killed", arguments) is None, f"there was no {where}"
        return
    case.calls.crash_at = point
    case.calls.counts.clear()
    try:
        run(case, attempt)
    except CrashError:
        return
    raise AssertionError(f"there was no {where}")


def run(case: PlayedSink, attempt: int) -> None:
    """An attempt, from what is durable to the end."""
    durable = durable_of(case)
    job = Attempt(case, attempt, durable)
    for checkpoint_id, rows in ROWS.items():
        if checkpoint_id > durable.checkpoint_id:
            job.write(*rows)
            promised = job.checkpoint(checkpoint_id)
            persist(case, promised)
            job.commit(promised)
    job.close()


def persist(case: PlayedSink, durable: Durable) -> None:
    """The point of no return."""
    path = f"{durable.checkpoint_id}.{MANIFEST}"
    case.store.create(path, durable.as_text().encode())
    case.calls.say(f"checkpoint {durable.checkpoint_id} is durable now")


def durable_of(case: PlayedSink) -> Durable:
    """The latest manifest."""
    for checkpoint_id in sorted(ROWS, reverse=True):
        with contextlib.suppress(FileNotFoundError):
            return Durable.of_text(case.store.read(f"{checkpoint_id}.{MANIFEST}").decode())
    return NOTHING


# --- In another process ---------------------------------------------------------------------------------


def run_until_killed(case: PlayedSink, arguments: Mapping[str, Json]) -> Json:
    """Dies at a crash point; comes back if the point is not reached."""
    given: dict[str, Any] = dict(arguments)
    attempt = given.pop("attempt")
    case.calls.crash_at = CrashPoint(**given)
    run(case, attempt)
    return "not reached"


def run_to_the_end(case: PlayedSink, arguments: Mapping[str, Json]) -> Json:
    """An attempt that nobody kills."""
    given: dict[str, Any] = dict(arguments)
    run(case, given["attempt"])
    return "done"


def restore_and_go_on(case: PlayedSink, arguments: Mapping[str, Json]) -> Json:
    """A new attempt restores what it is given, writes a row and commits it; the manifest of that."""
    given: dict[str, Any] = dict(arguments)
    restored = Durable.of_json(given["durable"])
    job = Attempt(case, given["attempt"], restored)
    job.write(given["row"])
    durable = job.checkpoint(restored.checkpoint_id + 1)
    job.commit(durable)
    job.close()
    return durable.as_json()


SCENARIOS: Mapping[str, Callable[[PlayedSink, Mapping[str, Json]], Json]] = {
    each.__name__: each for each in (run_until_killed, run_to_the_end, restore_and_go_on)
}
"""What an Elsewhere may be asked to run, by name."""

KillCheck = Callable[[Callable[[], PlayedSink]], None]
"""Takes what makes cases, each with a fresh output."""
_DONE_ONCE = "make its output visible; idempotent; returns when known done."
_ASKED = "Ask the system of record for the latest checkpoint that was committed under this ledger."


def _check(method: str, is_after: bool, owner: object, sentence: str) -> KillCheck:
    def check(make: Callable[[], PlayedSink]) -> None:
        case = make()
        commit = "SinkCommitter.commit" if case.commits_once else "SinkWriter.commit"
        for number, points in enumerate(runs_of(method, is_after, commit)):
            killed(make() if number else case, points)

    contract, name = method.split(".")
    whose = {"SinkWriter": "a_writer", "PreCommit": "a_pre_commit", "SinkCommitter": "a_committer"}[contract]
    check.__name__ = f"killed_{'after' if is_after else 'before'}_{name}_of_{whose}"
    return quotations.of(owner, sentence)(check)


def _both(method: str, owner: object, sentence: str) -> tuple[KillCheck, KillCheck]:
    return _check(method, False, owner, sentence), _check(method, True, owner, sentence)


KILL_CHECKS: Sequence[KillCheck] = (
    *_both("SinkWriter.recover", SinkWriter.recover, "then commit what the restored checkpoint promised"),
    *_both("SinkWriter.write", SinkWriter.write, "Take rows into what the next barrier pre-commits."),
    *_both("SinkWriter.pre_commit", SinkWriter.pre_commit, "Nothing becomes visible."),
    *_both("PreCommit.stage", PreCommit.stage, "Make it durable."),
    *_both("SinkWriter.commit", SinkWriter.commit, _DONE_ONCE),
)
"""The checks of every sink."""

COMMITTER_KILL_CHECKS: Sequence[KillCheck] = (
    *_both("SinkCommitter.last_committed", SinkCommitter.last_committed, _ASKED),
    *_both("SinkCommitter.commit", SinkCommitter.commit, "in one step."),
)
"""For sinks that commit once for all their writers, as well."""
