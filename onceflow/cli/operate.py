"""How the commands that work on a running job reach its driver."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import Any

from onceflow.runtime.control.connection import Connection, ConnectionLostError
from onceflow.runtime.control.messages import AskCancel, AskStatus, AskStop, Status
from onceflow.runtime.driver.options import absolute_url
from onceflow.runtime.environment.running_jobs import RunningJob, find, find_starting
from onceflow.runtime.errors import UsageError
from onceflow.runtime.sockets.connect import connect
from onceflow.runtime.sockets.handshake import HandshakeError

TIMEOUT_S = 5.0


def ask(checkpoint_dir: str, question: AskStatus | AskStop | AskCancel) -> Mapping[str, Any]:
    """The status of the job that runs on this checkpoint folder, after the question took effect.

    Raises UsageError if no driver answers there.
    """
    starting = [job for job in find_starting() if job.checkpoint_dir == absolute_url(checkpoint_dir)]
    try:
        job = find(checkpoint_dir)
        status = ask_running(job, question)
        missing = (
            f"no job runs on {checkpoint_dir}: its driver (pid {job.pid}) is gone; "
            "run the job again and it goes on from its last checkpoint"
        )
    except UsageError as error:
        status, missing = None, str(error)
    if status is None and starting:
        missing = f"the job on {checkpoint_dir} is starting (pid {starting[0].pid}): ask again in a moment"
    if status is None:
        raise UsageError(missing)
    return status


def ask_running(job: RunningJob, question: AskStatus | AskStop | AskCancel) -> Mapping[str, Any] | None:
    """The driver's answer; None if it is gone."""
    try:
        opened = connect(job.address, job.credentials, {"role": "operator"}, TIMEOUT_S)
        connection = Connection[Status](opened, Status)
        with closing(connection):
            connection.set_timeout(TIMEOUT_S)
            connection.send(question)
            return connection.receive().status
    except (OSError, HandshakeError, ConnectionLostError):
        return None
