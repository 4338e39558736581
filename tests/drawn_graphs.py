"""Job graphs that are drawn: each step reads streams of rows and gives streams of such rows.

Their output hangs on event time alone and not on the order in which rows come: no row is late, and functions
are those of `drawn_functions.py`. So a run with rescales has the rows of one without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from hypothesis import strategies as st

from onceflow import (
    Job,
    WatermarkStrategy,
    col,
    count,
    count_window,
    cumulative,
    lit,
    min_,
    session,
    sliding,
    sum_,
    tumbling,
)
from onceflow.testing.collecting_sink import CollectingSink, SinkRows
from tests.drawn_functions import Both, Held, Judge, Keep, Meet, Row, Windows

Rows = Any
SLACK_MS = 5
SOURCES = 3
WINDOWS = (tumbling(10), sliding(10, 5), cumulative(20, 5), session(4))
FIXED = WINDOWS[:2]


class Drawn:
    """A job while it is made: streams with event time go on, others end in a sink."""

    def __init__(self, max_parallelism: int) -> None:
        self.job = Job("drawn", max_parallelism=max_parallelism)
        times = WatermarkStrategy.bounded_out_of_orderness(SLACK_MS, event_time="ts")
        self.streams: list[Rows] = [
            self.job.from_elements(Row(0, "", 0, 0), watermarks=times, uid=f"source{n}")
            for n in range(SOURCES)
        ]
        self._sinks = 0

    def stream(self, number: int) -> Rows:
        return self.streams[number % len(self.streams)]

    def write(self, stream: Rows) -> None:
        self._sinks += 1
        uid = f"out{self._sinks}"
        stream.sink_to(CollectingSink(SinkRows(uid, stream.schema)), uid=uid)

    def build(self) -> Job:
        for stream in self.streams:
            self.write(stream)
        return self.job


def by_key(stream: Rows) -> Any:
    return stream.key_by("key")


def pairs(stream: Rows, ts: Any) -> Rows:
    """The pairs of a join as rows; a side that is not there adds nothing."""
    right = {name: col(f"{name}_right").fill_null(0) for name in ("id", "n")}
    return as_rows(stream, col("id") + 10 * right["id"], col("n") + right["n"], ts)


def as_rows(stream: Rows, id: Any, n: Any, ts: Any) -> Rows:
    """Rows of these columns, as the user's type: steps read all streams alike."""
    made = stream.select(id=id.fill_null(0), key=col("key"), n=n.fill_null(0), ts=ts.fill_null(0))
    return made.map(same)


def same(row: Any) -> Row:
    return Row(row.id, row.key, row.n, row.ts)


def changed(row: Row) -> Row:
    return Row(row.id, f"k{row.n % 4}", row.n + 1, row.ts)


def doubled(row: Row) -> Iterator[Row]:
    yield row
    yield Row(row.id + 1_000, row.key + "'", -row.n, row.ts)


def less(row: Row) -> Row:
    return Row(row.id + 1, row.key, row.n // 2, row.ts)


def one_of(one: Row, other: Row) -> Row:
    return Row(one.id + other.id, one.key, max(one.n, other.n), max(one.ts, other.ts))


def added(one: Row, other: Row) -> Row:
    return Row(one.id + other.id, one.key, one.n, one.ts)


def the_map(made: Drawn, a: Rows, b: Rows, n: int) -> Sequence[Rows]:
    return [a.map(changed)]


def the_flat_map(made: Drawn, a: Rows, b: Rows, n: int) -> Sequence[Rows]:
    return [a.flat_map(doubled)]


def the_filter(made: Drawn, a: Rows, b: Rows, n: int) -> Sequence[Rows]:
    return [a.filter(col("n") % 3 != n % 3)]


def the_union(made: Drawn, a: Rows, b: Rows, n: int) -> Sequence[Rows]:
    return [a.union(b)] if a is not b else [a.rebalance()]


def the_split(made: Drawn, a: Rows, b: Rows, n: int) -> Sequence[Rows]:
    return list(a.split({"even": col("n") % 2 == 0, "small": col("n") < n}, default="rest").values())


def the_process(made: Drawn, a: Rows, b: Rows, n: int) -> Sequence[Rows]:
    return [by_key(a).process(Keep())]


def the_two_streams(made: Drawn, a: Rows, b: Rows, n: int) -> Sequence[Rows]:
    return [by_key(a).connect(by_key(b)).process(Meet())]


def the_rules(made: Drawn, a: Rows, b: Rows, n: int) -> Sequence[Rows]:
    return [by_key(a).connect(b.broadcast()).process(Judge())]


def the_window(made: Drawn, a: Rows, b: Rows, n: int) -> Sequence[Rows]:
    windows = by_key(a).window(WINDOWS[n % len(WINDOWS)])
    return [as_rows(windows.aggregate(count=count(), n=sum_("n")), col("count"), col("n"), LAST)]


def the_window_of_all(made: Drawn, a: Rows, b: Rows, n: int) -> Sequence[Rows]:
    windows = a.window_all(WINDOWS[n % len(WINDOWS)]).aggregate(key=min_("key"), n=sum_("n"))
    return [as_rows(windows, lit(n), col("n"), LAST)]


def the_window_process(made: Drawn, a: Rows, b: Rows, n: int) -> Sequence[Rows]:
    return [by_key(a).window(WINDOWS[n % 3]).process(Windows())]


def the_window_reduce(made: Drawn, a: Rows, b: Rows, n: int) -> Sequence[Rows]:
    made.write(by_key(a).window(WINDOWS[n % len(WINDOWS)]).reduce(one_of))
    return []


def the_interval_join(made: Drawn, a: Rows, b: Rows, n: int) -> Sequence[Rows]:
    how = ("inner", "left")[n % 2]
    return [pairs(by_key(a).interval_join(by_key(b), -3 - n, n, how=how), LATER)]


def the_window_join(made: Drawn, a: Rows, b: Rows, n: int) -> Sequence[Rows]:
    return [pairs(by_key(a).window_join(by_key(b), FIXED[n % 2], how=("inner", "left")[n // 2 % 2]), LAST)]


def the_co_group(made: Drawn, a: Rows, b: Rows, n: int) -> Sequence[Rows]:
    return [by_key(a).co_group(by_key(b), FIXED[n % 2], Both())]


def the_temporal_join(made: Drawn, a: Rows, b: Rows, n: int) -> Sequence[Rows]:
    windows = by_key(b).window(tumbling(3)).aggregate(count=count(), n=sum_("n"))
    versions = as_rows(windows, col("count"), col("n"), LAST)
    return [pairs(by_key(a).temporal_join(by_key(versions), how="left"), col("ts"))]


def the_join(made: Drawn, a: Rows, b: Rows, n: int) -> Sequence[Rows]:
    if n % 2:
        made.write(by_key(a).join(by_key(b), how="full"))
        return []
    return [pairs(by_key(a).join(by_key(b)), LATER)]


def the_lists(made: Drawn, a: Rows, b: Rows, n: int) -> Sequence[Rows]:
    made.write(a.process(Held()))
    return []


def the_counts(made: Drawn, a: Rows, b: Rows, n: int) -> Sequence[Rows]:
    made.write(by_key(a).window(count_window(2 + n)).aggregate(count=count()))
    ones = a.with_columns(id=lit(1), n=lit(0), ts=lit(0)).map(same)
    made.write(by_key(ones).reduce(added))
    return []


def the_loop(made: Drawn, a: Rows, b: Rows, n: int) -> Sequence[Rows]:
    made.write(a.iterate(lambda loop: (loop.filter(col("n") > n).map(less), loop.filter(col("n") <= n))))
    return []


LAST = col("window_end") - 1
LATER = col("ts") + (col("ts_right") - col("ts")).fill_null(0).clip(0, None)
STEPS: dict[str, Callable[[Drawn, Rows, Rows, int], Sequence[Rows]]] = {
    name.removeprefix("the_"): step for name, step in list(globals().items()) if name.startswith("the_")
}
Step = tuple[str, int, int, int]
"""What it does, the streams that it reads, and a number that says more."""


def drawn_job(steps: Sequence[Step], max_parallelism: int) -> Job:
    made = Drawn(max_parallelism)
    for name, left, right, number in steps:
        made.streams += STEPS[name](made, made.stream(left), made.stream(right), number)
    return made.build()


STEP = st.tuples(st.sampled_from(sorted(STEPS)), st.integers(0, 20), st.integers(0, 20), st.integers(0, 5))
