"""BroadcastProcess: the user's code for a stream without a key, beside rules that every subtask has."""

from __future__ import annotations

from typing import Generic, TypeVar

from onceflow.runtime.operators.processing.broadcast import BroadcastConfig, BroadcastCtx, BroadcastOperator
from onceflow.runtime.operators.processing.keyless_process import KeylessOperator, Process

In = TypeVar("In")
Rule = TypeVar("Rule")
Out = TypeVar("Out")


class BroadcastProcess(Process[In, Out], Generic[In, Rule, Out]):
    """The user's class for a stream without a key beside a stream of rules that all subtasks get: process()
    and on_watermark() as in a Process, which read broadcast state, and process_broadcast(), which writes it.

    BroadcastProcess[I, R, O] names the types of records, rules and records out. Each subtask has its share of
    the records and all rules; what KeyedBroadcastProcess says of the order of rules holds here too.
    """

    def process_broadcast(self, rule: Rule, ctx: BroadcastCtx, /) -> None:
        """Called for each rule, on every subtask. There is nothing to send."""
        raise NotImplementedError


class KeylessBroadcastOperator(BroadcastOperator):
    """One subtask of a BroadcastProcess."""

    def __init__(self, config: BroadcastConfig, main: KeylessOperator) -> None:
        super().__init__(config, main, main.function)
        self._keyless = main

    def begin(self) -> None:
        self._keyless.begin()

    def on_barrier(self, checkpoint_id: int) -> None:
        self._keyless.on_barrier(checkpoint_id)
