"""Live questions: what a job that runs here remembers of keys now, before a checkpoint has it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import Any

import pyarrow as pa

from onceflow.cli.operate import reach
from onceflow.runtime.clock import SystemClock
from onceflow.runtime.control.connection import Connection, ConnectionLostError
from onceflow.runtime.control.live_messages import AskState, StateNow
from onceflow.runtime.environment.running_jobs import RunningJob
from onceflow.runtime.errors import Retryable, UsageError
from onceflow.runtime.sockets.connect import connect
from onceflow.runtime.sockets.handshake import HandshakeError
from onceflow.runtime.state_tables.live import by_key, of_bytes
from onceflow.runtime.state_tables.reader import UnknownTableError

TIMEOUT_S = 20.0
"""Longer than the driver waits for slots: what is in the way is for it to say."""
NOTE = "live: not committed, a restart takes it back to the checkpoint"


def ask_live(
    checkpoint_dir: str, operator: str, state: str, keys: Sequence[Any], are_texts: bool = False
) -> dict[str, Any]:
    """The rows of these keys as slots have them now: `rows` has a list for each key, `attempt` and
    `checkpoint_id` say what they build on. `are_texts`: keys are as a command takes them.

    Raises UsageError for a wrong question, Retryable if no job runs here, or its slots can't answer now.
    """
    question = AskState(operator, state, list(keys), are_texts)
    try:
        answer = reach(checkpoint_dir, lambda job: _asked(job, question))
    except UsageError as error:
        raise Retryable(
            f"a live answer comes from the job, and {error}; or ask without --live (live=True) for the last "
            "completed checkpoint"
        ) from error
    if answer.problem:
        kinds = {"wrong": UsageError, "unknown": UnknownTableError}
        raise kinds.get(answer.kind, Retryable)(answer.problem)
    of_keys = pa.ipc.open_stream(answer.keys).read_next_batch()
    return {
        "is_live": True,
        "note": NOTE,
        "attempt": answer.attempt,
        "checkpoint_id": answer.checkpoint_id,
        "asked_ms": SystemClock().now_ms(),
        "rows": by_key([of_bytes(rows) for rows in answer.rows], of_keys),
    }


def _asked(job: RunningJob, question: AskState) -> StateNow | None:
    try:
        opened = connect(job.address, job.credentials, {"role": "operator"}, TIMEOUT_S)
        with closing(Connection[StateNow](opened, StateNow)) as driver:
            driver.set_timeout(TIMEOUT_S)
            driver.send(question)
            return driver.receive()
    except (OSError, HandshakeError, ConnectionLostError):
        return None
