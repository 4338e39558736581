"""write_state of reduces and windows: a job that is given a state goes on as one that has always had it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import onceflow
from onceflow import (
    WindowBounds,
    approx_quantile,
    at_watermark,
    collect_list,
    count,
    count_distinct,
    count_window,
    cumulative,
    every_rows,
    evict_count,
    first,
    last,
    max_,
    mean,
    min_,
    processing_time,
    quantile,
    session,
    sliding,
    sum_,
    tumbling,
)
from onceflow.runtime.checkpoint.savepoints.taking import copy_savepoint
from onceflow.runtime.checkpoint.store_url import open_store
from onceflow.runtime.clock import SystemClock
from onceflow.runtime.errors import UsageError
from onceflow.runtime.state.overflow import StateOptions
from onceflow.runtime.state.snapshot_options import SnapshotOptions
from onceflow.runtime.state_tables import operator_rows, replaced_tables
from onceflow.runtime.state_tables.fitted_columns import fitted
from onceflow.runtime.testing.mutation import Mutant, mutated

Row = tuple[str, int, float | None, int]
REACHED_MS = 27_000
"""How far event time has come in each job when it is stopped."""
CLOCK: Row = ("clock", 0, 0.0, REACHED_MS + 1)
END: Row = ("clock", 0, 0.0, 999_999)
BACKENDS = {"heap": StateOptions(), "rocksdb": StateOptions("rocksdb", 1 << 24, SnapshotOptions(True))}
TABLES = {
    "reduce": "reduced", "fixed": "windows", "slid": "panes", "best": "windows", "every": "windows",
    "day": "spans", "visits": "spans", "visit": "spans",
}  # fmt: skip


def highest(a: Any, b: Any) -> Any:
    return a if a.amount >= b.amount else b


def build(stream: Any) -> Mapping[str, Any]:
    keyed = stream.key_by("user")
    each = {
        "n": count(), "prices": count("price"), "total": sum_("amount"), "spent": sum_("price"),
        "mean": mean("amount"), "mean_price": mean("price"), "low": min_("price"), "high": max_("amount"),
        "begin": first("price"), "end": last("amount"), "all": collect_list("amount"),
        "kinds": count_distinct("amount"), "half": quantile("price", 0.5),
    }  # fmt: skip
    few = {"n": count(), "total": sum_("amount"), "mean": mean("price"), "last": last("amount")}
    return {
        "out-reduce": keyed.reduce(highest, uid="reduce"),
        "out-fixed": keyed.window(tumbling("10 s", "1 s")).aggregate(uid="fixed", **each),
        "out-slid": keyed.window(sliding("10 s", "4 s")).aggregate(uid="slid", **few),
        "out-best": keyed.window(tumbling("10 s")).reduce(highest, uid="best"),
        "out-every": keyed.window(sliding("10 s", "5 s")).reduce(highest, uid="every"),
        "out-day": keyed.window(cumulative("20 s", "5 s")).aggregate(uid="day", **few),
        "out-visits": keyed.window(session("6 s")).aggregate(uid="visits", **each),
        "out-visit": keyed.window(session("6 s")).reduce(highest, uid="visit"),
    }


def stopped(made: Any, place: Path, rows: list[Row], state: StateOptions, program: Any = build) -> str:
    """A job that has read these rows, and a savepoint of it."""
    folder = made(place / "checkpoints")
    last_id = folder.run(program, *rows, CLOCK, state=state).result.last_checkpoint_id
    target = str(place / "savepoint")
    copy_savepoint(open_store(str(folder.path)), open_store(target), SystemClock(), last_id)
    return target


def continued(
    made: Any,
    place: Path,
    savepoint: str,
    read: list[Row],
    later: list[Row],
    state: StateOptions,
    program: Any = build,
    slots: int = 1,
) -> dict[str, list[dict[str, Any]]]:
    """What a job sends that starts from a savepoint which has read these rows, and reads the later ones."""
    folder = made(place)
    folder.rows = [*read]
    run = folder.run(program, *later, END, start_from=savepoint, state=state, slots=slots)
    assert not run.result.is_refused, run.result.reason
    visible: dict[str, list[dict[str, Any]]] = run.visible
    return visible


def rewritten(base: str, given: str, place: Path) -> str:
    """The first savepoint with all tables of the second."""
    for uid, table in TABLES.items():
        with onceflow.read_state(given) as stored:
            rows = stored.table(uid, table).read()
        target = str(place / uid)
        onceflow.write_state(target, uid, table, rows, keys=["user"], base=base)
        base = target
    return base


def check(
    made: Any, place: Path, was: list[Row], wanted: list[Row], later: list[Row], backends: tuple[str, str]
) -> None:
    before, after = (BACKENDS[backend] for backend in backends)
    width = max(len(was), len(wanted))
    padded = [[*rows, *[CLOCK] * (width - len(rows))] for rows in (was, wanted)]
    base = stopped(made, place / "base", padded[0], before)
    given = stopped(made, place / "given", padded[1], before)
    start = rewritten(base, given, place)
    with onceflow.read_state(given) as mine, onceflow.read_state(start) as theirs:
        for uid, table in TABLES.items():
            assert shown(theirs.table(uid, table).read()) == shown(mine.table(uid, table).read()), uid
    jobs = [(start, padded[0], after, 2), (given, padded[1], before, 1)]
    found, expected = (
        continued(made, place / f"job {n}", savepoint, [*rows, CLOCK], later, state, slots=slots)
        for n, (savepoint, rows, state, slots) in enumerate(jobs)
    )
    for sink, rows in expected.items():
        assert sorted(map(repr, found[sink])) == sorted(map(repr, rows)), sink


def shown(table: pa.Table) -> list[str]:
    return sorted(map(repr, table.drop([n for n in table.schema.names if n == "fired_ms"]).to_pylist()))


def rows_until(first_ms: int, last_ms: int) -> Any:
    row = st.tuples(
        st.sampled_from(["ann", "bob", "é", ""]),
        st.integers(-3, 9),
        st.none() | st.integers(-4, 4).map(lambda n: n / 4),
        st.integers(first_ms, last_ms),
    )
    return st.lists(row, max_size=8)


BEFORE, LATER = rows_until(14_000, REACHED_MS), rows_until(22_000, 45_000)
EDITED: Any = (
    [("ann", 1, 0.5, 21_500), ("bob", 2, None, 22_500), ("ann", 7, 1.5, 26_000)],
    [("ann", 5, 0.25, 21_500), ("é", 2, None, 24_500), ("ann", 2, 1.0, 26_000)],
    [("ann", 1, 0.5, 29_500), ("bob", 1, 0.5, 28_000), ("é", 1, 1.5, 30_000), ("bob", 3, 0.5, 31_000)],
)


@pytest.mark.parametrize("backends", [("heap", "rocksdb"), ("rocksdb", "heap")])
def test_a_job_with_a_state_that_was_written_is_as_one_that_had_it(
    in_folder: Any, tmp_path_factory: pytest.TempPathFactory, backends: tuple[str, str]
) -> None:
    """Accumulators of a key are others, a key is new, and one is gone; what is written back as it was is the
    same job."""

    @settings(max_examples=6, deadline=None)
    @given(BEFORE, BEFORE, LATER)
    @example(*EDITED)
    @example(EDITED[0], EDITED[0], EDITED[2])
    def drawn(was: list[Row], wanted: list[Row], later: list[Row]) -> None:
        check(in_folder, tmp_path_factory.mktemp("written"), was, wanted, later, backends)

    drawn()


def test_a_job_that_has_read_nothing_yet_is_a_base(in_folder: Any, tmp_path: Path) -> None:
    """What the tables are is known from its program alone: no file has a row. Event time is that of the base,
    so panes count in the windows, too, that had fired in the job that they are of."""
    was, _, later = EDITED
    given = stopped(in_folder, tmp_path / "given", was, BACKENDS["heap"])
    empty = in_folder(tmp_path / "empty")
    empty.run(build, state=BACKENDS["heap"])
    start = rewritten(str(empty.path), given, tmp_path)
    read = [*was, CLOCK]
    found = continued(in_folder, tmp_path / "a", start, [], later, BACKENDS["rocksdb"])
    expected = continued(in_folder, tmp_path / "b", given, read, later, BACKENDS["heap"])
    more = [row for row in found["out-slid"] if row not in expected["out-slid"]]
    assert {row["window_start"] for row in more} == {12_000, 16_000}
    found["out-slid"] = [row for row in found["out-slid"] if row not in more]
    for sink, rows in expected.items():
        assert sorted(map(repr, found[sink])) == sorted(map(repr, rows)), sink


# --- What is refused ---


@pytest.fixture(scope="module")
def base(in_folder: Any, tmp_path_factory: pytest.TempPathFactory) -> str:
    return stopped(in_folder, tmp_path_factory.mktemp("base"), EDITED[0], BACKENDS["heap"])


def rows_of(savepoint: str, uid: str) -> list[dict[str, Any]]:
    with onceflow.read_state(savepoint) as stored:
        rows: list[dict[str, Any]] = stored.table(uid).read().to_pylist()
    return sorted(rows, key=repr)


def schema_of(savepoint: str, uid: str) -> pa.Schema:
    with onceflow.read_state(savepoint) as stored:
        return stored.table(uid).schema


def first_with(value: Mapping[str, Any]) -> Any:
    """The rows with these values in the first one of them."""
    return lambda rows: [{**rows[0], "value": {**rows[0]["value"], **value}}, *rows[1:]]


WRONG: list[tuple[str, Any, str]] = [
    ("fixed", lambda rows: [*rows, rows[0]], r"has 2 rows of \{'user': .*: give one"),
    ("reduce", lambda rows: [*rows, rows[0]], r"has 2 rows of \{'user': .*: give one"),
    ("fixed", lambda rows: [{**rows[0], "window_start": 21_500}], "begin every 10000 ms, at 1000 ms"),
    (
        "fixed",
        lambda rows: [*rows, {**rows[0], "window_start": 11_000}],
        r"has passed, so that it would fire a second time, \{'user': .*\} in \[11000, 21000\): leave the row",
    ),
    ("every", lambda rows: [{**rows[0], "window_start": 15_000}], "event time has passed"),
    ("slid", lambda rows: [{**rows[0], "pane_start": 16_000}], "event time has passed"),
    ("slid", lambda rows: [{**rows[0], "pane_start": 24_001}], "no window of 10000 ms every 4000 ms begins"),
    ("day", lambda rows: [{**rows[0], "window_end": 31_000}], "end every 5000 ms: give others"),
    ("day", lambda rows: [{**rows[0], "window_end": 25_000}], "event time has passed"),
    ("day", lambda rows: [{**rows[0], "fired": True}], "has a window that has fired, and the base has not"),
    ("visits", lambda rows: [{**rows[0], "window_end": rows[0]["window_start"] + 5_999}], "6000 ms long at"),
    (
        "visit",
        lambda rows: [rows[0], {**rows[0], "window_start": rows[0]["window_end"], "window_end": 50_000}],
        "a session that touches another one of its key",
    ),
    ("fixed", first_with({"n": None}), r"'n' of state 'windows' of 'fixed' is null or negative"),
    ("fixed", first_with({"n": -1}), "is null or negative, and it is a count"),
    ("fixed", first_with({"mean": None}), "'mean' of .* is null, and it is a sum and a count: give 0 and 0"),
    ("fixed", first_with({"begin": {"event_time": 5, "value": None}}), "a value without an event_time"),
    ("fixed", first_with({"all": [1, None]}), "has a null in its list"),
    ("reduce", first_with({"user": None}), r"the value of .*\.user is null, which it never is: give"),
    ("reduce", lambda rows: [{**rows[0], "value": None}], "has a row without a value: leave the row out"),
]  # fmt: skip


@pytest.mark.parametrize(("uid", "change", "sentence"), WRONG)
def test_rows_that_would_change_results_in_silence_are_refused(
    base: str, tmp_path: Path, uid: str, change: Any, sentence: str
) -> None:
    schema = schema_of(base, uid)
    if uid == "day":
        schema = schema if "fired" in schema.names else schema.append(pa.field("fired", pa.bool_()))
    rows = pa.Table.from_pylist(change(rows_of(base, uid)), schema)
    with pytest.raises(UsageError, match=sentence):
        onceflow.write_state(str(tmp_path), uid, TABLES[uid], rows, keys=["user"], base=base)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()], "nothing stays of it"


def test_columns_that_do_not_fit_are_refused(base: str, tmp_path: Path) -> None:
    with onceflow.read_state(base) as stored:
        rows, reduced = stored.table("slid").read(), stored.table("reduce").read()

    def refused(given: pa.Table, sentence: str, uid: str = "slid", **options: Any) -> None:
        options = {"keys": ["user"], "state": TABLES[uid], **options}
        with pytest.raises(UsageError, match=sentence):
            onceflow.write_state(str(tmp_path), uid, options.pop("state"), given, base=base, **options)

    refused(rows, "'slid' has no state 'windows': use 'panes'", state="windows")
    refused(rows, "leave kind='map' out", kind="map")
    refused(rows, r"the key is \['pane_start'\], and in the base \['user'\]: give", keys=["pane_start"])
    refused(rows.drop(["pane_start"]), "needs a column 'pane_start'")
    refused(rows.append_column("more", rows["pane_start"]), "has no column 'more': leave it out")
    groups = pa.array([7] * len(rows), pa.uint16())
    refused(rows.append_column("key_group", groups), "whose key_group is not that of their key among 8")
    numbers = rows.set_column(0, "user", pa.array(range(len(rows))))
    refused(numbers, "the key is user int64, and in the base string: cast")
    value = rows["value"].combine_chunks()
    names = value.type.names
    few = pa.StructArray.from_arrays([value.field(n) for n in names[1:]], names[1:])
    refused(rows.set_column(rows.schema.get_field_index("value"), "value", few), "needs 'n' too: give all of")
    texts = pa.StructArray.from_arrays(
        [value.field("n").cast(pa.string()), *(value.field(n) for n in names[1:])], names
    )
    place = rows.schema.get_field_index("value")
    refused(
        rows.set_column(place, "value", texts), r"column 'value' of .*\.n is string, and in the base int64"
    )
    value = reduced["value"].combine_chunks()
    huge = pa.array([1 << 63] * len(value), pa.uint64())
    wrong = pa.StructArray.from_arrays(
        [huge if n == "amount" else value.field(n) for n in value.type.names], value.type.names
    )
    refused(reduced.set_column(1, "value", wrong), r"\.amount does not fit int64", "reduce")


def test_numbers_may_be_narrower_and_fields_in_another_order(base: str, tmp_path: Path) -> None:
    rows = rows_of(base, "reduce")
    small = pa.struct(
        [("ts", pa.int32()), ("user", pa.large_string()), ("price", pa.float32()), ("amount", pa.int8())]
    )
    given = pa.Table.from_pylist(rows, pa.schema([("value", small), ("user", pa.string())]))
    onceflow.write_state(str(tmp_path / "new"), "reduce", "reduced", given, keys=["user"], base=base)
    assert rows_of(str(tmp_path / "new"), "reduce") == rows


def test_all_rows_may_go(base: str, tmp_path: Path) -> None:
    for uid, table in TABLES.items():
        none = pa.Table.from_pylist([], schema_of(base, uid))
        onceflow.write_state(tmp_path / uid, uid, table, none, keys=["user"], base=base)
        assert rows_of(str(tmp_path / uid), uid) == []


def test_a_number_that_would_be_rounded_is_refused() -> None:
    of = pa.struct([("x", pa.float32())])
    fits = pa.array([{"x": 0.5}, {"x": None}, {"x": float("nan")}])
    assert fitted(fits, of, "it").type == of
    with pytest.raises(UsageError, match=r"it\.x does not fit float: a number would be rounded: give it"):
        fitted(pa.array([{"x": 0.1}]), of, "it")


def late(stream: Any) -> Mapping[str, Any]:
    windows = stream.key_by("user").window(tumbling("10 s"))
    windows = windows.allowed_lateness("20 s", results="accumulating")
    return {"out": windows.aggregate(uid="late", n=count(), total=sum_("amount"), low=min_("price"))}


def test_windows_that_have_fired_stay_as_they_were_sent(in_folder: Any, tmp_path: Path) -> None:
    nan = float("nan")
    was: list[Row] = [("ann", 3, nan, 15_000), ("bob", 4, nan, 16_000), ("ann", 5, nan, 25_000)]
    base = stopped(in_folder, tmp_path / "base", was, BACKENDS["heap"], late)
    rows, schema = rows_of(base, "late"), schema_of(base, "late")
    assert [row["fired"] for row in rows if row["window_start"] == 10_000] == [True, True]
    changed = [
        {**row, "value": {"n": 9, "total": 90, "low": 0.0}} if not row["fired"] else row for row in rows
    ]
    target = str(tmp_path / "edited")
    onceflow.write_state(
        target, "late", "spans", pa.Table.from_pylist(changed, schema), keys=["user"], base=base
    )
    later: list[Row] = [("ann", 1, None, 15_500), ("ann", 1, None, 28_000)]
    sent = continued(in_folder, tmp_path / "job", target, [*was, CLOCK], later, BACKENDS["rocksdb"], late)
    of_ann = [(row["window_start"], row["n"], row["total"]) for row in sent["out"] if row["user"] == "ann"]
    assert of_ann == [(10_000, 2, 4), (20_000, 10, 91)]
    wrong = [
        [{**row, "value": {"n": 9, "total": 90, "low": 0.0}} for row in rows],
        [row for row in rows if not row["fired"]],
        [{**row, "fired": False} for row in rows],
    ]
    for n, rows in enumerate(wrong):
        with pytest.raises(UsageError, match="other windows that have fired than the base"):
            onceflow.write_state(
                tmp_path / str(n),
                "late",
                "spans",
                pa.Table.from_pylist(rows, schema),
                keys=["user"],
                base=base,
            )


class Counted(NamedTuple):
    n: int


def counted(user: str, window: WindowBounds, rows: list[Any]) -> Iterator[Counted]:
    yield Counted(len(rows))


def other_kinds(stream: Any) -> Mapping[str, Any]:
    keyed = stream.key_by("user")
    early = keyed.window(tumbling("1 h")).trigger(at_watermark(early=every_rows(3)), results="accumulating")
    return {
        "a": keyed.window(count_window(5)).aggregate(uid="numbered", n=count()),
        "b": keyed.window(processing_time(tumbling("1 h"))).aggregate(uid="clocked", n=count()),
        "c": early.aggregate(uid="triggered", n=count()),
        "d": keyed.join(keyed, uid="joined"),
        "f": keyed.window(tumbling("1 h")).evictor(evict_count(2)).process(counted, uid="evicted"),
        "e": keyed.window(tumbling("1 h")).aggregate(uid="sketched", near=approx_quantile("amount", 0.5)),
    }


@pytest.fixture(scope="module")
def others(in_folder: Any, tmp_path_factory: pytest.TempPathFactory) -> str:
    place = tmp_path_factory.mktemp("others")
    return stopped(in_folder, place, [("ann", 1, 1.0, 5)], BACKENDS["heap"], other_kinds)


@pytest.mark.parametrize(
    ("uid", "sentence"),
    [
        ("numbered", "can't be written: windows of so many rows know by a number how full they are: give"),
        ("clocked", "can't be written: when its windows fire the clock says, which no row tells: give the"),
        ("triggered", "can't be written: when its windows fire a trigger says"),
        ("evicted", "can't be written: which rows stay an evictor says, and no row tells what it has seen"),
        ("joined", "can't be written: a join knows of each row what it has met: give the operator a new uid"),
    ],
)
def test_other_kinds_are_refused_with_what_is_possible(
    others: str, tmp_path: Path, uid: str, sentence: str
) -> None:
    with onceflow.read_state(others) as stored:
        table = stored.table(uid)
        rows, state = table.read(), table.state
    with pytest.raises(UsageError, match=sentence):
        onceflow.write_state(str(tmp_path), uid, state, rows, keys=["user"], base=others)


def test_a_sketch_is_one_that_the_base_has(others: str, tmp_path: Path) -> None:
    with onceflow.read_state(others) as stored:
        rows = stored.table("sketched").read()
    onceflow.write_state(str(tmp_path / "new"), "sketched", "windows", rows, keys=["user"], base=others)
    value = pa.StructArray.from_arrays([pa.array([b"x"] * len(rows))], ["near"])
    with pytest.raises(UsageError, match="is a sketch, and none that the base has: give one of those"):
        onceflow.write_state(
            str(tmp_path),
            "sketched",
            "windows",
            rows.set_column(2, "value", value),
            keys=["user"],
            base=others,
        )


# --- Mutants ---


def first_group(hashes: Any, max_parallelism: int) -> Any:
    return np.zeros(len(hashes), np.uint16)


def test_a_write_into_another_key_group_is_found(in_folder: Any, tmp_path: Path) -> None:
    mutant = Mutant("all rows are of the first key group", [(operator_rows, "key_groups_of", first_group)])
    with mutated(mutant), pytest.raises(AssertionError):
        check(in_folder, tmp_path, EDITED[0], EDITED[1], EDITED[2], ("heap", "heap"))


def test_accumulators_that_are_put_to_other_keys_are_found(in_folder: Any, tmp_path: Path) -> None:
    real = replaced_tables._columns

    def turned(*arguments: Any) -> Any:
        found = real(*arguments)
        return {**found, "value": found["value"][::-1]}

    mutant = Mutant("values belong to other rows", [(replaced_tables, "_columns", turned)])
    with mutated(mutant), pytest.raises(AssertionError):
        check(in_folder, tmp_path, EDITED[0], EDITED[1], EDITED[2], ("heap", "heap"))


def test_a_check_of_passed_windows_that_is_wrong_is_found(base: str, tmp_path: Path) -> None:
    def never(metas: Any, max_parallelism: int, hashes: Any) -> Any:
        return np.full(len(hashes), -(1 << 63), np.int64)

    _, change, sentence = WRONG[3]
    mutant = Mutant("event time has never come anywhere", [(replaced_tables, "reached", never)])
    with mutated(mutant), pytest.raises(pytest.fail.Exception):
        test_rows_that_would_change_results_in_silence_are_refused(base, tmp_path, "fixed", change, sentence)
