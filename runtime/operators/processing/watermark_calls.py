"""WatermarkCalls: calls on_watermark of an object of the user's, if its class defines it."""

from __future__ import annotations

from typing import Any, NoReturn

from onceflow.runtime.errors import UserFunctionError
from onceflow.runtime.operators.processing.keyed_process import Ctx
from onceflow.runtime.operators.processing.process_output import Made, ProcessOutput
from onceflow.runtime.records import WATERMARK_MAX_MS, WATERMARK_MIN_MS, Records
from onceflow.runtime.state.row_values import Cursor, NoKey
from onceflow.runtime.types.user_functions import user_error_at

ON_WATERMARK = "on_watermark"


def _refuse_key() -> NoReturn:
    raise UserFunctionError(
        "on_watermark() has no key: state of a key and timers are there only in process() and on_timer(): "
        "use them there"
    )


_NO_KEY = NoKey(_refuse_key)


class WatermarkCalls:
    """The calls of one subtask."""

    def __init__(
        self,
        uid: str,
        process: Any,
        ctx: Ctx,
        cursor: Cursor,
        output: ProcessOutput,
        no_key: NoKey = _NO_KEY,
    ) -> None:
        """`no_key`: what `cursor` shows during the calls."""
        self._uid = uid
        self._on_watermark = process.on_watermark
        self._is_wanted = _is_own(process)
        self._ctx = ctx
        self._cursor = cursor
        self._output = output
        self._no_key = no_key
        self._latest_ms = WATERMARK_MIN_MS
        """The highest event time of a record."""

    def note(self, records: Records) -> None:
        """These records have come."""
        if self._is_wanted and records.event_time is not None and len(records):
            self._latest_ms = max(self._latest_ms, int(records.event_time.max()))

    def call(self, before_ms: int) -> None:
        """Event time has come to `ctx.watermark`, and had come to `before_ms` before: what is made goes out
        in between."""
        if not self._is_wanted:
            return
        ctx, on_watermark, made = self._ctx, self._on_watermark, Made()
        self._cursor.row = self._no_key  # type: ignore[assignment]
        ctx.key, ctx.event_time = None, self._event_time(before_ms)
        try:
            results = on_watermark(ctx.watermark, ctx)
            if results is not None:
                made.add(results, 0, ctx.event_time)
        except Exception as error:
            raise user_error_at(self._uid, on_watermark, error, _place(ctx)) from error
        self._output.send(made, ctx.sent, lambda _: _place(ctx))

    def _event_time(self, before_ms: int) -> int | None:
        """The watermark's own. There is none at the end, where it is the latest time that is known, so that
        nothing is late downstream."""
        if not self._output.has_event_time:
            return None
        if self._ctx.watermark != WATERMARK_MAX_MS:
            return self._ctx.watermark
        passed_ms = before_ms + 1 if WATERMARK_MIN_MS < before_ms < WATERMARK_MAX_MS else 0
        return max(passed_ms, self._latest_ms)


def _is_own(process: Any) -> bool:
    """Whether the user's class defines it, or one that it derives from, which is not ours."""
    owner = next(each for each in type(process).__mro__ if ON_WATERMARK in vars(each))
    return not owner.__module__.startswith(__name__.rpartition(".")[0])


def _place(ctx: Ctx) -> str:
    return "the end of the input" if ctx.is_end_of_input else f"the watermark {ctx.watermark}"
