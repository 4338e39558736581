"""How the commands that work on a running job reach its driver."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any, TypeVar

from onceflow.runtime.control.connection import Connection, ConnectionLostError
from onceflow.runtime.control.messages import AskCancel, AskRescale, AskStatus, AskStop, Ended, Status
from onceflow.runtime.driver.options import absolute_url
from onceflow.runtime.environment.running_jobs import RunningJob, StartingJob, find, find_starting
from onceflow.runtime.errors import OnceflowError, UsageError
from onceflow.runtime.sockets.connect import connect
from onceflow.runtime.sockets.handshake import HandshakeError

TIMEOUT_S = 5.0
LOOK_AGAIN_S = 0.05
"""The pause between two looks at whether the driver's process has let go of the job."""

Question = AskStatus | AskStop | AskRescale | AskCancel
_GONE = (OSError, HandshakeError, ConnectionLostError)
Answer = TypeVar("Answer")


def ask(checkpoint_dir: str, question: Question) -> Mapping[str, Any]:
    """The status of the job that runs on this checkpoint folder, after the question took effect.

    Raises UsageError if no driver answers there.
    """
    return reach(checkpoint_dir, lambda job: ask_running(job, question))


def ask_running(job: RunningJob, question: Question) -> Mapping[str, Any] | None:
    """The driver's answer; None if it is gone."""
    try:
        with _connected(job) as driver:
            return _answer(driver, question)
    except _GONE:
        return None


def stop_and_wait(
    checkpoint_dir: str, timeout_s: float, drains: bool = False
) -> tuple[Mapping[str, Any], Ended]:
    """Stop the job, drained or not, and return once it has ended: its status when it was asked, and how it
    ended. On the driver's own machine its process has let go of the job by then, Spark included.

    Raises UsageError if no driver answers there, and OnceflowError if the job has not ended after `timeout_s`
    or its driver is lost before it has said how the job ended.
    """
    deadline_s = time.monotonic() + timeout_s

    def stop(job: RunningJob) -> tuple[Mapping[str, Any], Ended] | None:
        try:
            with _connected(job) as driver:
                status = _answer(driver, AskStop(drains=drains))
                ended = _end(driver, deadline_s)
        except _GONE:
            return None
        while ended is not None and any(process.pid == job.pid for process in _starting(checkpoint_dir)):
            if time.monotonic() >= deadline_s:
                ended = None
            time.sleep(LOOK_AGAIN_S)
        if ended is None and time.monotonic() >= deadline_s:
            raise OnceflowError(
                f"job {status['job']!r} has not ended {timeout_s:g} s after it was asked to: it goes on to "
                f"its last checkpoint; look at it with `onceflow status {checkpoint_dir}`, or wait for "
                "longer with --timeout"
            )
        if ended is None:
            raise OnceflowError(
                f"the driver of job {status['job']!r} (pid {job.pid}) was gone before it said how the job "
                "ended; run the job again and it goes on from its last checkpoint"
            )
        return status, ended

    return reach(checkpoint_dir, stop)


def reach(checkpoint_dir: str, use: Callable[[RunningJob], Answer | None]) -> Answer:
    """What `use` makes of the driver there; UsageError if there is none, or `use` gives None: it is gone."""
    starting = _starting(checkpoint_dir)
    try:
        job = find(checkpoint_dir)
        answer = use(job)
        missing = (
            f"no job runs on {checkpoint_dir}: its driver (pid {job.pid}) is gone; "
            "run the job again and it goes on from its last checkpoint"
        )
    except UsageError as error:
        answer, missing = None, str(error)
    if answer is None and starting:
        missing = f"the job on {checkpoint_dir} is starting (pid {starting[0].pid}): ask again in a moment"
    if answer is None:
        raise UsageError(missing)
    return answer


def _starting(checkpoint_dir: str) -> list[StartingJob]:
    return [job for job in find_starting() if job.checkpoint_dir == absolute_url(checkpoint_dir)]


@contextmanager
def _connected(job: RunningJob) -> Iterator[Connection[Status | Ended]]:
    """Raises one of _GONE."""
    opened = connect(job.address, job.credentials, {"role": "operator"}, TIMEOUT_S)
    with closing(Connection[Status | Ended](opened, Status | Ended)) as connection:  # type: ignore[arg-type]  # a union
        connection.set_timeout(TIMEOUT_S)
        yield connection


def _answer(driver: Connection[Status | Ended], question: Question) -> Mapping[str, Any]:
    driver.send(question)
    answer = driver.receive()
    assert isinstance(answer, Status), "the first answer is the status"
    return answer.status


def _end(driver: Connection[Status | Ended], deadline_s: float) -> Ended | None:
    """How the job ended; None if the driver is lost or the deadline comes first."""
    driver.set_timeout(max(0.0, deadline_s - time.monotonic()))
    try:
        ended = driver.receive()
    except ConnectionLostError:
        return None
    assert isinstance(ended, Ended), "nothing else follows the answer to a stop"
    return ended
