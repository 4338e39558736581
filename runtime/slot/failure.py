"""What a slot that fails tells the driver."""

from __future__ import annotations

import traceback

from onceflow.runtime.checkpoint.fingerprints import fingerprints, is_unavailable
from onceflow.runtime.control.messages import Failed
from onceflow.runtime.errors import Fatal, Fenced, OnceflowError, UsageError, UserFunctionError
from onceflow.runtime.exchange.remote_channel import PeerLostError
from onceflow.runtime.functions.parameters import NO_PARAMS, Parameters
from onceflow.runtime.slot.call_watch import UserCall


def failure(attempt: int, error: BaseException, params: Parameters = NO_PARAMS) -> Failed:
    """What the driver has to know of an error that ended the slot; secrets are hidden."""
    expected = isinstance(error, OnceflowError)
    reason = str(error) if expected else f"{type(error).__name__}: {error}"
    if not isinstance(error, Exception):
        raised = traceback.extract_tb(error.__traceback__)[-1]
        reason += f" was raised at {raised.filename}:{raised.lineno}, which would have ended the process"
    return Failed(
        attempt=attempt,
        reason=params.redact(reason),
        is_fatal=isinstance(error, Fatal | UsageError),
        is_fenced=isinstance(error, Fenced),
        kind=type(error).__name__,
        detail=params.redact("".join(traceback.format_exception(error))),
        is_unavailable=is_unavailable(error),
        is_consequence=isinstance(error, PeerLostError),
        fingerprints=tuple(sorted(map(params.redact, fingerprints(error)))),
    )


def hanging(
    attempt: int, call: UserCall, lasted_ms: float, can_end: bool, params: Parameters = NO_PARAMS
) -> Failed:
    """What the driver has to know of a call that does not come back. Without a process of its own the slot
    can't be ended, and another attempt would run beside the call: fatal."""
    reason = f"{call.describe(lasted_ms)}: if it may take so long, give a longer slot_timeout"
    if not can_end:
        reason += ". A thread of the job's own process can't be ended, as a slot on Spark can"
    kind = UserFunctionError.__name__
    return Failed(
        attempt=attempt,
        reason=params.redact(reason),
        is_fatal=not can_end,
        kind=kind,
        fingerprints=(params.redact(call.fingerprint),),
    )
