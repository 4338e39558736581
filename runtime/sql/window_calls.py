"""TUMBLE, HOP, CUMULATE and SESSION: as table functions in FROM, and TUMBLE, HOP and SESSION in GROUP BY."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl
from sqlglot import exp

from onceflow.runtime.errors import OptionError
from onceflow.runtime.operators.assigners.cumulative import cumulative
from onceflow.runtime.operators.assigners.session import session
from onceflow.runtime.operators.assigners.sliding import sliding
from onceflow.runtime.operators.assigners.tumbling import tumbling
from onceflow.runtime.operators.windows.new_spans import Window
from onceflow.runtime.sql.grammar import TableArgument
from onceflow.runtime.sql.literals import interval_ms
from onceflow.runtime.sql.places import refusal, shown
from onceflow.runtime.sql.relations import Column, Relation, Role, TableNames, Windowing
from onceflow.runtime.sql.sql_types import Typed, is_moment

KINDS = ("TUMBLE", "HOP", "CUMULATE", "SESSION")
_LENGTHS: Mapping[str, tuple[str, ...]] = {
    "TUMBLE": ("SIZE", "OFFSET"),
    "HOP": ("SLIDE", "SIZE", "OFFSET"),
    "CUMULATE": ("STEP", "SIZE", "OFFSET"),
    "SESSION": ("GAP",),
}
_COLUMNS = {"window_start": Role.START, "window_end": Role.END, "window_time": Role.TIME}


def table_function(node: exp.Expr) -> exp.Anonymous | None:
    """The call in `TABLE(TUMBLE(...))`, or in FROM TUMBLE(...); None: it is something else."""
    call = node.this
    if isinstance(call, exp.Anonymous) and call.name.upper() == "TABLE" and len(call.expressions) == 1:
        call = call.expressions[0]
    return call if isinstance(call, exp.Anonymous) else None


def split_arguments(call: exp.Anonymous) -> tuple[exp.Expr, exp.Expr, dict[str, exp.Expr]]:
    """The table, the DESCRIPTOR, and the lengths by name."""
    kind = call.name.upper()
    if kind not in KINDS:
        raise refusal(call, f"there is no table function {kind}: use TUMBLE, HOP, CUMULATE or SESSION")
    names = ("DATA", "TIMECOL", *_LENGTHS[kind])
    given: dict[str, exp.Expr] = {}
    for place, argument in enumerate(call.expressions):
        named = isinstance(argument, exp.Kwarg)
        name = argument.this.name.upper() if named else names[place] if place < len(names) else "?"
        if name not in names or name in given:
            raise refusal(call, f"{kind} takes {', '.join(names)}, each once: {_example(kind)}")
        given[name] = argument.expression if named else argument
    missing = [name for name in names if name not in given and name != "OFFSET"]
    if missing:
        raise refusal(call, f"{kind} lacks {', '.join(missing)}: {_example(kind)}")
    return given.pop("DATA"), given.pop("TIMECOL"), given


def with_windows(
    call: exp.Anonymous, relation: Relation, table: exp.Expr, time: exp.Expr, lengths: Mapping[str, exp.Expr]
) -> Relation:
    """The relation with the columns window_start, window_end and window_time."""
    kind = call.name.upper()
    names = TableNames(relation, None)
    if not (
        isinstance(time, exp.Anonymous) and time.name.upper() == "DESCRIPTOR" and len(time.expressions) == 1
    ):
        raise refusal(time, f"which column is the event time? {_example(kind)}")
    check_event_time(time.expressions[0], names)
    if relation.windowing is not None and relation.windowing.multiplies:
        raise refusal(call, "windows of rows that are in windows already: group by the inner ones first")
    keys = _partition(call, table, names)
    windowing = Windowing(kind, _window(call, kind, lengths), keys)
    for name in _COLUMNS:
        if name in relation.columns:
            raise refusal(
                call,
                f"the table has a column {name!r}, and {kind} adds one: give it another name in a sub-query",
            )
    of_time = next(c.value for c in relation.columns.values() if Role.EVENT_TIME in c.roles)
    made = _tumbled(windowing, of_time) if kind == "TUMBLE" else dict.fromkeys(_COLUMNS, of_time)
    added = {
        name: Column(made[name], frozenset((role,)), is_virtual=windowing.multiplies)
        for name, role in _COLUMNS.items()
    }
    return Relation(relation.stream, {**relation.without_windowing().columns, **added}, windowing)


def group_window(call: exp.Anonymous, names: TableNames) -> Windowing:
    """The windows of `GROUP BY TUMBLE(ts, INTERVAL '1' HOUR)`."""
    kind = call.name.upper()
    if kind == "CUMULATE" or len(call.expressions) < 2:
        raise refusal(
            call, f"{shown(call)} in GROUP BY: write TUMBLE(ts, INTERVAL '1' HOUR), or {_example(kind)}"
        )
    time, *lengths = call.expressions
    check_event_time(time, names)
    wanted = _LENGTHS[kind]
    if len(lengths) not in (len(wanted), len(wanted) - ("OFFSET" in wanted)):
        raise refusal(call, f"{kind} in GROUP BY takes the time, and {', '.join(wanted)}: see docs/sql.md")
    return Windowing(kind, _window(call, kind, dict(zip(wanted, lengths, strict=False))))


def check_event_time(node: exp.Expr, names: TableNames) -> None:
    """Raises GraphError unless this is the column that has the event time of the rows."""
    if isinstance(node, exp.Column) and Role.EVENT_TIME in names.roles(node):
        return
    event_time = names.relation.event_time
    if event_time is not None:
        raise refusal(
            node, f"{shown(node)} is not the event time of these rows, which is {event_time!r}: use that"
        )
    for computed in names.relation.computed_times.values():
        raise refusal(
            node,
            f"{shown(node)} is not the event time of these rows, which is {computed}: SELECT that AS a "
            "column in a sub-query, and use it",
        )
    raise refusal(
        node,
        f"{shown(node)} is not known to be the event time of these rows: windows need a column that is, as "
        'WatermarkStrategy.bounded_out_of_orderness("2 s", event_time="ts") of the source says, and that '
        "reaches the query as it is; map_batches(..., event_time=...) names a new one",
    )


def moment(ms: pl.Expr, dtype: pl.DataType) -> Typed:
    """A time in ms as the event time's type has it."""
    if not isinstance(dtype, pl.Datetime):
        return Typed(ms, dtype)
    made = ms.cast(pl.Datetime("ms")).cast(pl.Datetime(dtype.time_unit))
    if dtype.time_zone is not None:
        made = made.dt.replace_time_zone("UTC").dt.convert_time_zone(dtype.time_zone)
    return Typed(made, dtype)


def _tumbled(windowing: Windowing, of_time: Typed) -> dict[str, Typed]:
    window: Any = windowing.window
    ms = of_time.expr.dt.timestamp("ms") if is_moment(of_time.type) else of_time.expr
    start = (ms - window.offset_ms).floordiv(window.size_ms) * window.size_ms + window.offset_ms
    made = {
        "window_start": start,
        "window_end": start + window.size_ms,
        "window_time": start + window.size_ms - 1,
    }
    return {name: moment(each, of_time.type) for name, each in made.items()}


def _partition(call: exp.Anonymous, table: exp.Expr, names: TableNames) -> frozenset[str] | None:
    keys = table.expressions if isinstance(table, TableArgument) else []
    if call.name.upper() != "SESSION":
        if keys:
            raise refusal(
                call, f"PARTITION BY belongs to SESSION: {call.name.upper()} has no use for it, leave it out"
            )
        return None
    for key in keys:
        names.column(key)
    return frozenset(key.name for key in keys)


def _window(call: exp.Anonymous, kind: str, lengths: Mapping[str, exp.Expr]) -> Window:
    ms = {name: interval_ms(each) for name, each in lengths.items()}
    offset = ms.get("OFFSET", 0)
    try:
        match kind:
            case "TUMBLE":
                return tumbling(ms["SIZE"], offset)
            case "HOP":
                return sliding(ms["SIZE"], ms["SLIDE"], offset)
            case "CUMULATE":
                return cumulative(ms["SIZE"], ms["STEP"], offset)
            case _:
                return session(ms["GAP"])
    except OptionError as error:
        raise refusal(call, f"{shown(call)}: {error}") from error


def _example(kind: str) -> str:
    lengths = {
        "TUMBLE": "INTERVAL '1' HOUR",
        "HOP": "INTERVAL '5' MINUTE, INTERVAL '1' HOUR",
        "CUMULATE": "INTERVAL '1' HOUR, INTERVAL '1' DAY",
        "SESSION": "INTERVAL '30' MINUTE",
    }
    table = "TABLE visits PARTITION BY user" if kind == "SESSION" else "TABLE visits"
    return f"{kind}({table}, DESCRIPTOR(ts), {lengths.get(kind, '')})"
