"""The triggers there are: every_rows(100), at_watermark(early=every("10 s")), delta("price", 5), ...

Descriptions; operators/windows/built_in_triggers.py has the columns that they become.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import polars as pl

from onceflow.runtime.durations import duration_ms
from onceflow.runtime.errors import OptionError
from onceflow.runtime.explained_calls import explained


@dataclass(frozen=True, slots=True)
class BuiltInTrigger:
    """When a window fires. Several parts may be set: it fires whenever one of them says so."""

    at_end: bool = False
    """When the watermark has reached the window's last ms; from then on at once for late rows."""
    rows: int | None = None
    """It fires with each so many rows."""
    every_ms: int | None = None
    """When event time has come to a multiple of it, if rows have come since the last firing."""
    every_clock_ms: int | None = None
    """The same by the clock."""
    at_clock_end: bool = False
    """When the clock shows the window's end."""
    delta: str | pl.Expr | None = None
    """When this column or expression is more than `threshold` away from what it was in the row that fired
    last, or in the first row."""
    threshold: float = 0.0
    late: BuiltInTrigger | None = None
    """The trigger by which it fires for late rows when its end has passed. None: at once."""
    purges: bool = False
    """What has been sent is forgotten: the next result is that of the rows that come from then on."""

    @property
    def title(self) -> str:
        """For the plan, and for the comparison with a checkpoint's."""
        fires = " and ".join(self._parts)
        late = "" if self.late is None else f", for late rows {self.late._parts[0]}"
        return f"fires {fires}{late}{', purging' if self.purges else ''}"

    @property
    def is_of_one_kind(self) -> bool:
        """Whether it goes by rows, by an interval or by an interval of the clock, and by nothing else."""
        is_more = self.at_clock_end or self.delta is not None or self.late is not None or self.purges
        kinds = [self.rows, self.every_ms, self.every_clock_ms]
        return (
            not is_more
            and sum(each is not None for each in kinds) == 1
            and self.at_end is (self.every_ms is not None)
        )

    @property
    def _parts(self) -> list[str]:
        parts = [
            (self.rows is not None, f"every {self.rows} rows"),
            (self.every_ms is not None, f"every {self.every_ms} ms"),
            (self.every_clock_ms is not None, f"every {self.every_clock_ms} ms by the clock"),
            (self.at_clock_end, "at its end by the clock"),
            (self.delta is not None, f"when {self.delta} has moved by more than {self.threshold}"),
            (self.at_end, "at the watermark"),
        ]
        return [text for is_set, text in parts if is_set]

    @property
    def columns_read(self) -> frozenset[str]:
        """The columns that `delta` needs."""
        if self.delta is None:
            return frozenset()
        return frozenset([self.delta] if isinstance(self.delta, str) else self.delta.meta.root_names())


@explained
def at_watermark(early: BuiltInTrigger | None = None, late: BuiltInTrigger | None = None) -> BuiltInTrigger:
    """The default: a window fires when the watermark has reached its last millisecond, and again, at once,
    for each batch of late rows that allowed_lateness lets in.

    `early`: a trigger by which it fires before that too, as in at_watermark(early=every("10 s")). `late`:
    every_rows(100), every("10 s") or every_processing_time("10 s"), by which it fires for late rows instead
    of at once; what is then left is sent when its lateness is over. Raises OptionError for what is no trigger
    of onceflow's, or purges (put purging() around the whole).
    """
    if early is not None and (
        not isinstance(early, BuiltInTrigger) or early.purges or early.late is not None
    ):
        raise OptionError(
            f"at_watermark(early={early!r}): use every_rows(...), every(...), every_processing_time(...) or "
            "delta(...); purging(at_watermark(early=...)) purges"
        )
    if late is not None and not (isinstance(late, BuiltInTrigger) and late.is_of_one_kind):
        raise OptionError(
            f"at_watermark(late={late!r}): use every_rows(...), every(...) or every_processing_time(...), by "
            "itself"
        )
    return replace(early or BuiltInTrigger(), at_end=True, late=late)


@explained
def every_rows(rows: int) -> BuiltInTrigger:
    """A window fires with each so many rows, at exactly that row, however rows are cut into batches; what is
    left when it ends is not sent, as in Flink (at_watermark(early=every_rows(100)) sends it). Raises
    OptionError if it is not a number of rows."""
    if not isinstance(rows, int) or isinstance(rows, bool) or rows < 1:
        raise OptionError(f"every_rows({rows!r}): give a number of rows, 1 at least")
    return BuiltInTrigger(rows=rows)


@explained
def every(interval: str | int) -> BuiltInTrigger:
    """A window fires each time event time has come to a multiple of this interval ("10 s", or int ms), if
    rows have come since it fired last; and at the watermark. In processing_time(...) windows it goes by the
    clock. Raises OptionError for what is not a duration."""
    return BuiltInTrigger(at_end=True, every_ms=_interval_ms(interval, "every"))


@explained
def every_processing_time(interval: str | int) -> BuiltInTrigger:
    """A window fires each time the clock shows a multiple of this interval, if rows have come since it fired
    last. What is left when it ends is not sent, as in Flink, unless the whole input ends
    (at_watermark(early=every_processing_time("10 s")) sends it). Raises OptionError for what is no
    duration."""
    return BuiltInTrigger(every_clock_ms=_interval_ms(interval, "every_processing_time"))


@explained
def at_processing_time() -> BuiltInTrigger:
    """A window in event time fires when the clock shows its end, once, and not at the watermark."""
    return BuiltInTrigger(at_clock_end=True)


@explained
def delta(value: str | pl.Expr, threshold: float) -> BuiltInTrigger:
    """A window fires when a column, or a polars expression, is more than `threshold` away from what it was in
    the row that fired it last, or else in its first row. Nulls are passed over. What is left when the window
    ends is not sent, as in Flink. Raises OptionError for what is no threshold."""
    if isinstance(threshold, bool) or not isinstance(threshold, int | float) or not threshold >= 0:
        raise OptionError(f"delta({value}, {threshold!r}): give a number as the threshold, 0 at least")
    if not isinstance(value, str | pl.Expr):
        raise OptionError(f"delta({value!r}, ...): give a column's name or a polars expression")
    return BuiltInTrigger(delta=value, threshold=float(threshold))


@explained
def purging(trigger: BuiltInTrigger) -> BuiltInTrigger:
    """The same trigger, which forgets the rows of a window when it has fired: each result is that of the rows
    since the one before. Raises OptionError for what is no trigger of onceflow's: your own Trigger returns
    FIRE_AND_PURGE."""
    if not isinstance(trigger, BuiltInTrigger):
        raise OptionError(
            f"purging({trigger!r}): use it around every_rows(...), every(...) and the like; a Trigger of "
            "your own returns FIRE_AND_PURGE"
        )
    return replace(trigger, purges=True)


def _interval_ms(interval: str | int, what: str) -> int:
    interval_ms = duration_ms(interval, what)
    if interval_ms < 1:
        raise OptionError(f"{what}({interval!r}): an interval is at least 1 ms long: give a longer one")
    return interval_ms
