"""DueWindows: what a trigger has decided by now, for windows that are away as for those in memory."""

from __future__ import annotations

from onceflow.runtime.operators.windows.row_trigger import Acted, RowTrigger
from onceflow.runtime.operators.windows.span_rows import SpanRows
from onceflow.runtime.records import WATERMARK_MAX_MS, WATERMARK_MIN_MS


class DueWindows:
    """Brings keys back some at a time, and asks the trigger for what is due of them."""

    def __init__(self, trigger: RowTrigger, spans: SpanRows) -> None:
        self._trigger = trigger
        self._spans = spans
        self._away = spans.away

    def by_event_time(self, count: int) -> Acted | None:
        """RowTrigger.by_event_time, up to the watermark."""
        acted, until_ms = None, WATERMARK_MIN_MS
        reached_ms = self._spans.lateness.reached_ms
        while acted is None and until_ms < reached_ms:
            is_free = not self._trigger.holds_rows
            until_ms = self._away.due_until(self._trigger.next_event_ms) if is_free else reached_ms
            acted = self._trigger.by_event_time(until_ms, count)
        return acted

    def by_clock(self, now_ms: int, count: int) -> Acted | None:
        """RowTrigger.by_clock."""
        acted, is_away = None, True
        while acted is None and is_away:
            is_away = self._away.bring_by_clock(now_ms, self._trigger.next_clock_ms)
            acted = self._trigger.by_clock(now_ms, count)
        return acted

    @property
    def next_event_ms(self) -> int:
        """The watermark, plus one, at which something is due, or a key comes back; WATERMARK_MAX_MS: none."""
        away_ms = self._away.next_ms
        here_ms = self._trigger.next_event_ms
        next_ms = here_ms if away_ms is None else min(here_ms, away_ms)
        return next_ms if next_ms == WATERMARK_MAX_MS else next_ms + 1

    @property
    def next_clock_ms(self) -> int | None:
        times = self._trigger.next_clock_ms, self._away.next_clock_ms
        return min((ms for ms in times if ms is not None), default=None)
