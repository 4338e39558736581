"""FunctionContext: what a function object gets when it is opened."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from onceflow.runtime.functions.log import FunctionLog
from onceflow.runtime.functions.metrics import FunctionMetrics, MetricRegistry
from onceflow.runtime.functions.parameters import Parameters


@dataclass(frozen=True, slots=True)
class FunctionContext:
    """Given to `open(self, ctx)` of a function object; good until its `close` has returned."""

    job: str
    uid: str
    """The operator's or sink's."""
    subtask: int
    parallelism: int
    attempt: int
    """The run of the job between two restarts."""
    params: Parameters
    log: FunctionLog
    metrics: FunctionMetrics


def function_context(
    job: str,
    uid: str,
    subtask: int,
    parallelism: int,
    attempt: int,
    params: Parameters,
    origin: Callable[[], str],
    registry: MetricRegistry,
) -> FunctionContext:
    """The context of one function of one subtask. `origin`: see FunctionLog."""
    about = {"job": job, "uid": uid, "subtask": subtask, "attempt": attempt}
    log = FunctionLog(about, origin, params.redact)
    return FunctionContext(
        job, uid, subtask, parallelism, attempt, params, log, FunctionMetrics(registry, uid)
    )
