"""State of another computation is refused in one sentence; what is added or allowed to be dropped is said.

The table below is that of docs/operations.md, "Changing a program that has state".
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from onceflow.runtime.api.graph_builder import JobGraphBuilder
from onceflow.runtime.api.stream import Stream
from onceflow.runtime.checkpoint.manifest import CheckpointManifest, StateHandle, TableFile
from onceflow.runtime.checkpoint.state_fits import Fit, Program, fit
from onceflow.runtime.contracts import Committable, SplitProgress, SplitState, WatermarkStrategy
from onceflow.runtime.errors import UsageError
from onceflow.runtime.operators.aggregation.aggregates import (
    AggregateFunction,
    count,
    first,
    max_,
    mean,
    sum_,
)
from onceflow.runtime.operators.assigners.by_clock import processing_time
from onceflow.runtime.operators.assigners.counting import count_window
from onceflow.runtime.operators.assigners.cumulative import cumulative
from onceflow.runtime.operators.assigners.session import session
from onceflow.runtime.operators.assigners.sliding import sliding
from onceflow.runtime.operators.assigners.tumbling import tumbling
from onceflow.runtime.operators.describe import expression_form
from onceflow.runtime.operators.processing.keyed_process import KeyedProcess
from onceflow.runtime.state.description import (
    KeyColumn,
    StateDescription,
    StatePart,
    TimeToLive,
    Windows,
)
from onceflow.runtime.state.handles import ListState, MapState, ValueState

col = pl.col


class Rows:
    """A source that exists only in a graph."""

    def __init__(self, amount: pa.DataType, has_event_time: bool) -> None:
        names = [("user", pa.string()), ("shop", pa.string()), ("amount", amount), ("ts", pa.int64())]
        self.schema = pa.schema([pa.field(name, arrow, nullable=False) for name, arrow in names])
        self.record_type = None
        self.is_bounded = True
        self.watermarks = WatermarkStrategy("ts", 0) if has_event_time else None


class Anything:
    def check(self, schema: pa.Schema, uid: str) -> None: ...

    def open_writer(self, context: Any) -> Any: ...


def described(
    build: Callable[[Stream[Any]], Stream[Any]], amount: pa.DataType | None = None, event_time: bool = True
) -> StateDescription:
    """The state of operator "op" of a program."""
    source = Rows(amount or pa.int64(), event_time)
    job = JobGraphBuilder("job", max_parallelism=8)
    build(job.source(source, watermarks=source.watermarks, uid="src")).sink_to(Anything(), uid="out")  # type: ignore[arg-type]
    state = job.build().states()["op"]
    assert state is not None
    return state


def program(op: StateDescription | None, allows: bool = False) -> Program:
    return Program("job", 8, {"src": None, "op": op, "out": None}, allows)


def manifest(op: StateDescription, rows: int = 5, **more: Any) -> CheckpointManifest:
    """Checkpoint 7, whose state of "op" has so many rows."""
    table = TableFile(op.table, "state/x", 0, 10, "crc32:0", (rows, 0, 0, 0, 0, 0, 0, 0))
    handle = StateHandle("op", 0, 0, 8, (table,) if rows else ())
    return CheckpointManifest(
        "job", "beef", 1, 7, 0, 0, 1, 8, states=[handle], **{"operators": {"op": op}, **more}
    )


def restored(was: StateDescription, now: StateDescription, allows: bool = False, rows: int = 5) -> Fit:
    return fit(manifest(was, rows), program(now, allows))


def windows(
    *keys: Any, window: Any = None, late: str = "", **aggregates: Any
) -> Callable[[Stream[Any]], Stream[Any]]:
    named = aggregates or {"total": sum_("amount")}

    def build(stream: Stream[Any]) -> Stream[Any]:
        windowed = stream.key_by(*(keys or ("user",))).window(window or tumbling("10 s"))
        if late:
            windowed = windowed.allowed_lateness(late, results="accumulating")
        return windowed.aggregate(uid="op", **named)

    return build


class Spread(AggregateFunction[Any, int, int]):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: Any, accumulator: int) -> int:
        return accumulator

    def merge(self, accumulator_a: int, accumulator_b: int) -> int:
        return accumulator_a

    def get_result(self, accumulator: int) -> int:
        return accumulator


class Widest(Spread):
    """Another one with the same types."""


def larger(a: Any, b: Any) -> Any:
    return a


def smaller(a: Any, b: Any) -> Any:
    return b


class Process(KeyedProcess[str, Any, None]):
    seen = ValueState("seen", int)

    def process(self, record: Any, ctx: Any) -> None: ...


class Retyped(Process):
    seen = ValueState("seen", float)  # type: ignore[assignment]


class Listed(Process):
    seen = ListState("seen", int)  # type: ignore[assignment]


class ValueOfList(Process):
    seen = ValueState("seen", list[int])  # type: ignore[assignment]


class Renamed(Process):
    seen = ValueState("latest", int)


class More(Process):
    places = MapState("places", str, float)


def reduced(fn: Any) -> Callable[[Stream[Any]], Stream[Any]]:
    return lambda s: s.key_by("user").reduce(fn, uid="op")


def processed(process: Any) -> Callable[[Stream[Any]], Stream[Any]]:
    return lambda s: s.key_by("user").process(process, returns=Out, uid="op")


class Out(NamedTuple):
    user: str


REFUSED: list[tuple[str, Any, Any, str]] = [
    ("kind", windows(), windows(total=max_("amount")), r"total=sum_\('amount'\).*total=max_\('amount'\)"),
    ("count to sum", windows(n=count()), windows(n=sum_("amount")), r"n=count\(\).*n=sum_\('amount'\)"),
    ("column", windows(), windows(total=sum_("ts")), r"total=sum_\('amount'\).*total=sum_\('ts'\)"),
    ("expression", windows(total=sum_(col("amount") * 2)), windows(total=sum_(col("amount") * 3)),
     r"aggregate 'total' from \[\(col\(\"amount\"\)\) \* \(dyn int: 2\)\].*dyn int: 3"),
    ("an argument of an expression", windows(m=mean((col("amount") / 3).round(1))),
     windows(m=mean((col("amount") / 3).round(2))), r"round\(\), the program the same with other arguments"),
    ("column to expression", windows(), windows(total=sum_(col("amount") * 2)), r"total=sum_\('amount'\)"),
    ("function of the user's", windows(x=Spread()), windows(x=Widest()), r"function\(Spread\).*\(Widest\)"),
    ("key", windows("user"), windows("shop"), r"has the key user string, in the program shop string"),
    ("key columns", windows("user"), windows("user", "shop"), r"user string, in the program user string, sh"),
    ("order of the key", windows("user", "shop"), windows("shop", "user"), r"has the key user string, shop"),
    ("key expression", windows(col("user").str.to_lowercase().alias("k")),
     windows(col("user").str.to_uppercase().alias("k")), r"key 'k' from col\(\"user\"\).str.to_lowercase"),
    ("size", windows(), windows(window=tumbling("5 s")), r"windows of 10000 ms, the program tumb"),
    ("offset", windows(), windows(window=tumbling("10 s", "1 s")), r"10000 ms from 1000 ms on"),
    ("slide", windows(window=sliding("10 s", "5 s")), windows(window=sliding("10 s", "2 s")), "every 5000"),
    ("kind of window", windows(), windows(window=sliding("10 s", "10 s")), r"tumbling.*sliding windows"),
    ("gap", windows(window=session("5 s")), windows(window=session("6 s")),
     "sessions with a gap of 5000 ms, the program sessions with a gap of 6000 ms: keep the windows"),
    ("gap by a column", windows(window=session("ts")), windows(window=session("amount")),
     "a gap by 'ts', the program sessions with a gap by 'amount'"),
    ("gap by an expression", windows(window=session(col("ts") * 2)), windows(window=session(col("ts") * 3)),
     "sessions with the gap from"),
    ("lateness", windows(late="5 s"), windows(late="6 s"), "5000 ms of lateness, accumulating, the program"),
    ("lateness to none", windows(late="5 s"), windows(), "lateness, accumulating, the program tumbl"),
    ("by the clock", windows(), windows(window=processing_time(tumbling("10 s"))), "10000 ms by the clock"),
    ("rows", windows(window=count_window(3)), windows(window=count_window(4)), "windows of 3 rows, the prog"),
    ("slide of rows", windows(window=count_window(3)), windows(window=count_window(3, 2)), "rows every 2"),
    ("steps", windows(window=cumulative("10 s", "5 s")), windows(window=cumulative("10 s", "2 s")), "every"),
    ("aggregate to reduce", windows(),
     lambda s: s.key_by("user").window(tumbling("10 s")).reduce(larger, uid="op"), "of a window aggregate"),
    ("windows to none", windows(), reduced(larger), "is of a window aggregate, in the program reduce"),
    ("reduce function", reduced(larger), reduced(smaller), r"reduce\(larger\).*reduce\(smaller\): keep"),
    ("removed", windows(a=count(), b=sum_("ts")), windows(a=count()), "aggregate 'b', which the program"),
    ("added, never null", windows(), windows(total=sum_("amount"), n=count()),
     r"can't be null: write n=sum_\(col\(c\).is_not_null\(\)\), where c is a column without nulls, which"),
    ("type of a state", processed(Process()), processed(Retyped()), "seen=value.* as int64.* as double"),
    ("value to list", processed(ValueOfList()), processed(Listed()), r"seen=value\(\).*seen=list\(\)"),
    ("state gone", processed(Process()), processed(Renamed()), "state 'seen', which the program"),
]  # fmt: skip
"""What changed, the program before, after, and part of the sentence."""


@pytest.mark.parametrize(
    ("before", "after", "sentence"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED]
)
def test_state_of_another_computation_is_refused(before: Any, after: Any, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence) as refused:
        restored(described(before), described(after))
    said = str(refused.value)
    assert "operator 'op'" in said
    assert "checkpoint 7" in said
    assert "\n" not in said
    assert ": " in said, "says what to do"


@pytest.mark.parametrize("row", REFUSED, ids=[row[0] for row in REFUSED])
def test_the_same_program_fits_without_a_word(row: Any) -> None:
    for build in row[1:3]:
        assert restored(described(build), described(build)).notes == []


def test_another_type_of_key_or_of_what_is_kept_is_refused() -> None:
    for build, sentence in (
        (windows("amount"), "key amount int64, in the program amount double"),
        (windows(top=max_("amount")), "as int64, the program .* as double"),
        (windows(f=first("amount")), "struct<event_time: int64, value: int64>"),
        (reduced(larger), "amount: int64 not null.*amount: double not null"),
    ):
        with pytest.raises(UsageError, match=sentence):
            restored(described(build), described(build, pa.float64()))


def test_what_does_not_change_a_result_fits() -> None:
    for before, after in (
        (windows(a=count(), b=sum_("ts")), windows(b=sum_("ts"), a=count())),
        (windows(total=sum_("amount")), windows(total=sum_(col("amount")))),
        (windows(total=sum_("amount")), windows(total=sum_(col("amount").alias("other")))),
    ):
        assert restored(described(before), described(after)).notes == []
    wider = described(windows(), pa.int32()), described(windows(), pa.int64())
    assert restored(*wider).notes == [], "a sum of integers is the same number"


def test_timers_need_event_time() -> None:
    with_time, without = described(processed(Process())), described(processed(Process()), event_time=False)
    with pytest.raises(UsageError, match="event-time timers, the program no event time"):
        restored(with_time, without)
    assert restored(without, with_time).notes == []


def test_an_added_aggregate_is_null_for_open_windows_and_said() -> None:
    before, nullable = described(windows()), described(windows(total=sum_("amount"), top=max_(col("amount"))))
    [note] = restored(before, nullable).notes
    assert (note.uid, note.change) == ("op", "added")
    assert "aggregate 'top' is new since checkpoint 7: windows that were open then get null" in note.text
    never_null = described(windows(total=sum_("amount"), n=count()))
    [note] = restored(before, never_null, rows=0).notes
    assert "no window was open" in note.text


@pytest.mark.parametrize(
    ("added", "instead"),
    [
        (
            max_("amount"),
            r"write x=max_\(col\('amount'\)\), which may be null, and max_\('amount'\) again once",
        ),
        (count("amount"), r"write x=sum_\(col\('amount'\).is_not_null\(\)\) which may be null, or give"),
        (count(col("amount") * 2), r"write x=sum_\(e.is_not_null\(\)\), where e is the expression"),
        (Spread(), "let the get_result of Spread return an optional type, or give the operator a new uid"),
    ],
    ids=["max", "count of a column", "count of an expression", "the user's own"],
)
def test_an_aggregate_that_is_never_null_is_refused_with_what_to_write_instead(
    added: Any, instead: str
) -> None:
    before, after = described(windows()), described(windows(total=sum_("amount"), x=added))
    with pytest.raises(UsageError, match=instead):
        restored(before, after)


def test_what_is_to_be_written_instead_is_taken_and_may_be_written_plainly_again() -> None:
    before, plainly = described(windows()), described(windows(total=sum_("amount"), x=max_("amount")))
    instead = described(windows(total=sum_("amount"), x=max_(col("amount"))))
    counted = described(windows(total=sum_("amount"), n=sum_(col("user").is_not_null())))
    for taken in (instead, counted):
        assert [note.change for note in restored(before, taken).notes] == ["added"]
    assert restored(instead, plainly).notes == []


def test_an_added_state_begins_empty_and_is_said() -> None:
    [note] = restored(described(processed(Process())), described(processed(More()))).notes
    assert (note.change, "state 'places' is new since checkpoint 7: it begins empty" in note.text) == (
        "added",
        True,
    )


CLOCK = TimeToLive(5_000, is_by_clock=True)


@pytest.mark.parametrize(
    ("was", "now", "then"),
    [
        (None, TimeToLive(1_000), "a ttl of 1000 ms of event time after a write, and no ttl in checkpoint 7: "
         "what is there expires as if it were written now"),
        (TimeToLive(1_000), CLOCK, "expires as if it were written now"),
        (TimeToLive(1_000), TimeToLive(5_000), "expires when it would have, until it is written again"),
        (CLOCK, None, "no ttl, and a ttl of 5000 ms of processing time after a write in checkpoint 7: "
         "what had not expired is kept for good"),
    ],
)  # fmt: skip
def test_another_ttl_is_taken_and_said(was: TimeToLive | None, now: TimeToLive | None, then: str) -> None:
    before, after = (
        StateDescription(
            "process", "keys", (KeyColumn("u", "string"),), (StatePart("s", "value", "int64", ttl=t),)
        )
        for t in (was, now)
    )
    [note] = restored(before, after).notes
    assert note.change == "ttl"
    assert note.text.endswith(then), note.text
    assert restored(after, after).notes == []


@pytest.mark.parametrize("name", ["removed", "state gone"])
def test_what_is_gone_is_dropped_if_allowed_and_said(name: str) -> None:
    [(_, before, after, _)] = [row for row in REFUSED if row[0] == name]
    notes = restored(described(before), described(after), allows=True).notes
    assert [note.change for note in notes][:1] == ["dropped"]


@pytest.mark.parametrize(
    "row", [r for r in REFUSED if r[0] not in ("removed", "state gone")], ids=lambda r: r[0]
)
def test_what_was_computed_otherwise_is_refused_whatever_is_allowed(row: Any) -> None:
    with pytest.raises(UsageError):
        restored(described(row[1]), described(row[2]), allows=True)


# --- Whole operators ----------------------------------------------------------------------------------


def test_a_uid_that_is_gone_is_refused_by_name_or_dropped_if_allowed() -> None:
    state = described(windows())
    more = {
        "splits": {"source": [SplitProgress(SplitState("t-0", {}))]},
        "finished": {"source": 17},
        "committables": [Committable("sink", "0", 7, {})],
    }
    whole = manifest(state, **more)
    everything = {"op": state, "source": None, "sink": None}
    assert fit(whole, Program("job", 8, everything)) == Fit(whole, [])
    for gone, what in (
        ("op", "state"),
        ("source", "splits"),
        ("sink", "output that may not be committed yet"),
    ):
        less = {uid: s for uid, s in everything.items() if uid != gone} | {gone + "s": None}
        with pytest.raises(
            UsageError, match=f"has {what} of operator '{gone}'.*did you mean '{gone}s'.*--allow"
        ):
            fit(whole, Program("job", 8, less))
        kept = fit(whole, Program("job", 8, less, allows_dropped_state=True))
        assert [(note.uid, note.change) for note in kept.notes] == [(gone, "dropped")]
        left = {h.uid for h in kept.manifest.states} | set(kept.manifest.splits)
        assert set(kept.manifest.finished) == left & {"source"}
        assert left | {c.uid for c in kept.manifest.committables} == set(everything) - {gone}


def test_an_operator_that_keeps_nothing_any_more_is_one_that_is_gone() -> None:
    whole = manifest(described(windows()))
    with pytest.raises(UsageError, match="keeps none any more: make it what it was, or start with --allow"):
        fit(whole, program(None))
    assert fit(whole, program(None, allows=True)).manifest.states == []


def test_another_job_or_max_parallelism_is_refused() -> None:
    state = described(windows())
    with pytest.raises(UsageError, match="belongs to job 'job', not 'other'"):
        fit(manifest(state), replace(program(state), job="other"))
    with pytest.raises(UsageError, match="max_parallelism 8, not 16"):
        fit(manifest(state), replace(program(state), max_parallelism=16))


# --- What can't be compared ---------------------------------------------------------------------------


def test_a_state_without_a_description_is_restored_and_said() -> None:
    state = described(windows())
    [note] = fit(manifest(state, operators={}), program(state)).notes
    assert note.change == "unchecked"
    assert "written by an older onceflow" in note.text


def test_another_polars_writes_expressions_otherwise_and_is_believed_aloud() -> None:
    """A false refusal after an upgrade would be as bad as a silent load. The columns are still compared."""
    now = described(windows(col("user").alias("k"), total=sum_(col("amount") * 2)))
    older = structs.replace(
        now,
        keys=tuple(structs.replace(k, expression=_by_another_polars(k.expression)) for k in now.keys),
        parts=tuple(structs.replace(p, expression=_by_another_polars(p.expression)) for p in now.parts),
    )
    notes = restored(older, now).notes
    assert [note.change for note in notes] == ["unchecked", "unchecked"]
    assert "as polars 0.1 writes it" in notes[0].text
    [part] = older.parts
    assert part.expression is not None
    other = structs.replace(part, expression=structs.replace(part.expression, reads=("ts",)))
    with pytest.raises(UsageError, match="aggregate 'total'"):
        restored(structs.replace(older, parts=(other,)), now)


def _by_another_polars(expression: Any) -> Any:
    return structs.replace(expression, text="otherwise", digest="0", polars="0.1")


def test_expressions_are_written_down_the_same_each_time() -> None:
    for make in (
        lambda: col("a").is_in([1, 2]),
        lambda: (col("a") * 2).round(2),
        lambda: pl.when(col("a") > 1).then(col("b")).otherwise(None),
    ):
        assert expression_form(make()) == expression_form(make())
    function = expression_form(col("a").map_batches(lambda s: s))
    assert (function.digest, function.reads) == ("", ("a",)), "the code of a function is not compared"


# --- Any two descriptions -----------------------------------------------------------------------------

PARTS = st.builds(
    StatePart,
    name=st.sampled_from("ab"),
    kind=st.sampled_from(["sum_", "max_"]),
    type=st.sampled_from(["int64", "double"]),
    column=st.sampled_from(["x", "y"]),
    is_nullable=st.booleans(),
)
DESCRIPTIONS = st.builds(
    StateDescription,
    kind=st.just("window aggregate"),
    table=st.just("windows"),
    keys=st.lists(
        st.sampled_from([KeyColumn("u", "string"), KeyColumn("u", "int64"), KeyColumn("v", "string")]),
        min_size=1, max_size=2,
    ).map(tuple),
    parts=st.lists(PARTS, min_size=1, max_size=2, unique_by=lambda p: p.name).map(tuple),
    windows=st.sampled_from([Windows("tumbling", 9, 9), Windows("sliding", 9, 9), Windows("sliding", 9, 3)]),
)  # fmt: skip


@given(DESCRIPTIONS, DESCRIPTIONS, st.booleans(), st.integers(0, 2))
def test_whatever_is_restored_without_a_word_is_the_same_computation(
    was: StateDescription, now: StateDescription, allows: bool, rows: int
) -> None:
    try:
        notes = restored(was, now, allows, rows).notes
    except UsageError:
        return
    assert (was.keys, was.windows) == (now.keys, now.windows)
    identity = [{p.name: (p.kind, p.type, p.column) for p in description.parts} for description in (was, now)]
    assert all(identity[0][name] == identity[1][name] for name in identity[0].keys() & identity[1].keys())
    said = {(note.change, name) for note, name in itertools.product(notes, "ab") if repr(name) in note.text}
    assert said == {("dropped", n) for n in identity[0].keys() - identity[1].keys()} | {
        ("added", n) for n in identity[1].keys() - identity[0].keys()
    }


def test_all_states_that_do_not_fit_are_named_at_once() -> None:
    """Whoever starts a changed program learns everything the first time."""
    was, now = described(windows(total=sum_("amount"))), described(windows(total=max_("amount")))
    saved = manifest(was)
    twice = replace(
        saved,
        states=[*saved.states, *(structs.replace(h, uid="two") for h in saved.states)],
        operators={"op": was, "two": was},
    )
    with pytest.raises(UsageError, match=r"operator 'op': .*; and operator 'two': .*"):
        fit(twice, Program("job", 8, {"op": now, "two": now}))
