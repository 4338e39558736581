"""IterationHead: where the input of a loop and the rows that come round meet."""

from __future__ import annotations

from collections.abc import Sequence

from onceflow.runtime.operators.iteration.back_edge import BackEdge
from onceflow.runtime.operators.operator import OperatorContext, Output, RestoredState
from onceflow.runtime.records import WATERMARK_MAX_MS, LoopToken, Records

_TOKEN_PAUSE_MS = 10
"""Between two rounds of the token: a loop in which something waits for the clock asks no oftener."""


class IterationHead:
    """One subtask. Rows of the input and rows that came round go out alike, without event time.

    The end of the input is held until the loop is empty in all subtasks. That is found by a token: the head
    sends it behind all of its rows once its input has ended and no row waits; operators pass it on behind the
    rows before it, from all channels; the tail gives it back. A round is quiet if no head sent a row between
    this token and the one before, and no operator of the body had something of its own to send later. What a
    head had sent before the earlier token is through the body when that one comes back, so a quiet round has
    met nothing: the loop is empty, for all heads, since they all get the same answer.
    """

    def __init__(self, loop: str) -> None:
        self.loop = loop
        self._back = BackEdge()
        """Another one once it is opened: what it is asked before that has an answer too."""
        self._has_input_ended = False
        self._has_sent_rows = True
        """Since the last token; before the first one nothing is known."""
        self._round = 0
        self._is_token_out = False
        self._ask_at_ms = 0

    def open(self, context: OperatorContext, out: Output) -> None:
        self._out = out
        self._clock = context.clock
        self._back = context.shared(f"loop {self.loop}", BackEdge)

    def restore(self, states: Sequence[RestoredState]) -> None:
        raise AssertionError("what is in flight is the state of the tail")

    def on_records(self, records: Records) -> None:
        self._send(records)

    def on_watermark(self, time_ms: int) -> None:
        self._has_input_ended = time_ms == WATERMARK_MAX_MS

    @property
    def wake_at_ms(self) -> int | None:
        """Now, if rows came round or the token did; when to send it again."""
        if len(self._back) or self._back.returned is not None:
            return self._clock.now_ms()
        may_ask = self._has_input_ended and not self._is_token_out and not self._back.is_over
        return self._ask_at_ms if may_ask else None

    def on_clock(self, now_ms: int, rows_max: int) -> int:
        """Send on rows that came round, before the token is looked at that came behind them."""
        records = self._back.take(rows_max)
        if records is not None:
            self._send(records)
            return len(records)
        if (token := self._back.returned) is not None:
            self._back.returned, self._is_token_out = None, False
            self._back.is_over = token.is_quiet
            self._ask_at_ms = now_ms + _TOKEN_PAUSE_MS
        return 0

    def token(self) -> LoopToken | None:
        """What to send behind the rows that went out, if it is time for it. Asked after each on_clock."""
        is_due = self._has_input_ended and not self._is_token_out and not self._back.is_over
        if not is_due or len(self._back) or self._clock.now_ms() < self._ask_at_ms:
            return None
        self._round += 1
        is_quiet, self._has_sent_rows, self._is_token_out = not self._has_sent_rows, False, True
        return LoopToken(self.loop, self._round, is_quiet)

    @property
    def holds_end(self) -> bool:
        """The end of the input waits for the loop."""
        return not self._back.is_over

    def on_barrier(self, checkpoint_id: int) -> None:
        self._back.begin_log(checkpoint_id)

    def snapshot(self) -> None:
        return None

    def close(self) -> None:
        pass

    def _send(self, records: Records) -> None:
        self._has_sent_rows = True
        self._out.emit(Records(records.batch))
