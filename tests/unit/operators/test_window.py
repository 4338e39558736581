"""Tumbling windows: what they compute, when they fire, what is late, what a restore keeps."""

from decimal import Decimal

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from onceflow.runtime.errors import Fatal, GraphError, OptionError
from onceflow.runtime.operators.aggregation.aggregates import count, first, last, max_, mean, min_, sum_
from onceflow.runtime.operators.assigners.sliding import Sliding, sliding
from onceflow.runtime.operators.assigners.tumbling import Tumbling, tumbling
from onceflow.runtime.operators.windows.window import WindowAggregate, WindowReduce
from onceflow.runtime.testing.harness import OperatorHarness, stored

SCHEMA = pa.schema(
    [("user", pa.string()), ("amount", pa.int64()), ("price", pa.float64()), ("note", pa.string())]
)


def config(window: Tumbling | Sliding | None = None, late: bool = False, **aggregates) -> WindowAggregate:
    return WindowAggregate(
        "totals", ("user",), window or tumbling("10 s"), aggregates or {"n": count()}, SCHEMA, late
    )


def harness(configured: WindowAggregate, parallelism: int = 1, states=None) -> OperatorHarness:
    return OperatorHarness(configured.create, configured.key_columns, parallelism, states=states)


def batch(*rows: tuple) -> pa.RecordBatch:
    filled = [(*row, *[None] * (4 - len(row))) for row in rows]
    return pa.RecordBatch.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in filled], SCHEMA)


def push(to: OperatorHarness, *rows: tuple) -> None:
    """Rows of (event time, user, amount, price, note)."""
    to.push(batch(*(row[1:] for row in rows)), [row[0] for row in rows])


def by_key(rows: list[dict]) -> dict:
    return {(row["user"], row["window_start"]): row for row in rows}


def test_count_and_sum_per_user_and_window():
    h = harness(config(n=count(), total=sum_("amount")))
    push(h, (1_000, "a", 5), (9_999, "a", 7), (10_000, "a", 1), (0, "b", None), (3, None, 4))
    h.finish()
    assert by_key(h.rows()) == {
        ("a", 0): {"user": "a", "window_start": 0, "window_end": 10_000, "n": 2, "total": 12},
        ("a", 10_000): {"user": "a", "window_start": 10_000, "window_end": 20_000, "n": 1, "total": 1},
        ("b", 0): {"user": "b", "window_start": 0, "window_end": 10_000, "n": 1, "total": None},
        (None, 0): {"user": None, "window_start": 0, "window_end": 10_000, "n": 1, "total": 4},
    }


def test_a_window_fires_at_its_last_millisecond_and_not_before():
    h = harness(config())
    push(h, (0, "a"))
    h.advance(9_998)
    assert h.rows() == []
    h.advance(9_999)
    assert [row["n"] for row in h.rows()] == [1]
    h.finish()
    assert len(h.rows()) == 1


def test_results_carry_the_last_millisecond_of_their_window_as_event_time():
    h = harness(config())
    push(h, (0, "a"), (-1, "a"))
    h.finish()
    [(_, records)] = h.out.emitted
    assert records.event_time.tolist() == [-1, 9_999]
    assert records.batch.schema == config().output_schema


def test_all_aggregates_skip_nulls():
    everything = {"rows": count(), "amounts": count("amount"), "total": sum_("price"), "mean": mean("amount")}
    everything |= {"low": min_("amount"), "high": max_("price"), "least": min_("note"), "most": max_("note")}
    everything |= {"first": first("note"), "last": last("note")}
    h = harness(config(**everything))
    push(
        h,
        (5, "a", 4, 0.5, "m"),
        (1, "a", None, 2.5, None),
        (2, "a", -3, None, "z"),
        (9, "a", None, None, None),
        (7, "a", 2, float("nan"), ""),
        (1, "b"),
    )
    h.finish()
    a, b = sorted(h.rows(), key=lambda row: row["user"])
    expected = {"rows": 5, "amounts": 3, "low": -3, "high": 2.5, "mean": 1.0}
    expected |= {"first": "z", "last": "", "least": "", "most": "z"}
    assert {name: a[name] for name in expected} == expected
    assert np.isnan(a["total"])
    assert {k: v for k, v in b.items() if v is None} == dict.fromkeys(
        ["low", "high", "mean", "first", "last", "least", "most", "total"]
    )
    assert b["rows"] == 1
    assert b["amounts"] == 0


def test_first_and_last_go_by_event_time_and_then_by_arrival():
    h = harness(config(first=first("note"), last=last("note")))
    push(h, (5, "a", 0, 0.0, "five"), (3, "a", 0, 0.0, "three"), (9, "a", 0, 0.0, "nine"))
    push(h, (3, "a", 0, 0.0, "three again"), (9, "a", 0, 0.0, "nine again"), (4, "a", 0, 0.0, "four"))
    h.finish()
    assert [(row["first"], row["last"]) for row in h.rows()] == [("three", "nine again")]


def test_expressions_are_aggregated_like_columns():
    h = harness(config(cents=sum_(pl.col("price") * 100), shouts=max_(pl.col("note").str.to_uppercase())))
    push(h, (1, "a", 0, 1.5, "x"), (2, "a", 0, 2.0, "b"), (3, "b", 0, 0.25, None))
    h.finish()
    assert {row["user"]: (row["cents"], row["shouts"]) for row in h.rows()} == {
        "a": (350.0, "X"),
        "b": (25.0, None),
    }


@pytest.mark.parametrize(
    ("arrow", "values"),
    [
        (pa.int8(), [3, -4, None]),
        (pa.uint64(), [1, (1 << 64) - 1, None]),
        (pa.float32(), [0.5, -1.5, None]),
        (pa.bool_(), [True, False, None]),
        (pa.date32(), [1, 2, None]),
        (pa.timestamp("us", "UTC"), [1, 2, None]),
        (pa.time32("ms"), [1, 2, None]),
        (pa.duration("ms"), [5, 2, None]),
        (pa.decimal128(5, 2), [Decimal("1.25"), Decimal("-1.00"), None]),
        (pa.binary(), [b"b", b"a", None]),
        (pa.large_string(), ["b", "a", None]),
    ],
)
def test_extremes_and_edges_keep_the_columns_type(arrow, values):
    column = pa.array(values, arrow)
    schema = pa.schema([("k", pa.int32()), ("v", arrow)])
    aggregates = {"low": min_("v"), "high": max_("v"), "first": first("v"), "last": last("v")}
    configured = WindowAggregate("w", ("k",), tumbling(10), aggregates, schema)
    h = OperatorHarness(configured.create, ["k"])
    h.push(pa.RecordBatch.from_arrays([pa.array([1, 1, 1], pa.int32()), column], schema=schema), [0, 1, 2])
    h = OperatorHarness(configured.create, ["k"], states=h.snapshot())
    h.finish()
    [(_, records)] = h.out.emitted
    one, other = column.slice(0, 1).to_pylist()[0], column.slice(1, 1).to_pylist()[0]
    [row] = records.batch.to_pylist()
    assert records.batch.schema == configured.output_schema
    assert (row["low"], row["high"]) == (min(one, other), max(one, other))
    assert (row["first"], row["last"]) == (one, other)


# --- Sums that do not fit ---------------------------------------------------------------------------

HUGE = (1 << 63) - 1


def test_a_sum_that_does_not_fit_64_bits_fails_and_names_the_key():
    h = harness(config(total=sum_("amount")))
    push(h, (1, "fine", 5), (1, "rich", HUGE))
    with pytest.raises(
        Fatal,
        match=r"'operator', column 'total': .* 9223372036854775808.*user='rich' in the window \[0, 10000\)",
    ):
        push(h, (1, "fine", 5), (1, "rich", 1))


def test_a_sum_at_the_very_edge_is_exact():
    h = harness(config(total=sum_("amount"), mean=mean("amount")))
    push(h, (1, "max", HUGE - 3), (1, "min", -HUGE), (1, "swing", HUGE))
    push(h, (1, "max", 3), (1, "min", -1), (1, "swing", -HUGE), (1, "swing", HUGE), (1, "swing", -5))
    h.finish()
    assert {row["user"]: row["total"] for row in h.rows()} == {
        "max": HUGE,
        "min": -HUGE - 1,
        "swing": HUGE - 5,
    }
    assert next(row["mean"] for row in h.rows() if row["user"] == "swing") == pytest.approx((HUGE - 5) / 4)


@pytest.mark.parametrize("is_restored", [False, True])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_sum_that_leaves_the_range_in_small_steps_is_found_out(is_restored, sign):
    h = harness(config(total=sum_("amount")))
    push(h, (1, "a", sign * (1 << 62)), (1, "b", 1))
    if is_restored:
        h = harness(config(total=sum_("amount")), 1, h.snapshot())
    push(h, (1, "a", sign * ((1 << 62) - 1)))
    with pytest.raises(Fatal, match=str(sign * ((1 << 63) + 1))):
        push(h, (1, "a", sign * 2))


def test_unsigned_values_beyond_int64_do_not_wrap():
    schema = pa.schema([("k", pa.int64()), ("v", pa.uint64())])
    configured = WindowAggregate("w", ("k",), tumbling(10), {"total": sum_("v")}, schema)
    h = OperatorHarness(configured.create, ["k"])
    with pytest.raises(Fatal, match=str((1 << 64) - 1)):
        h.push(pa.RecordBatch.from_pylist([{"k": 1, "v": (1 << 64) - 1}], schema), [0])


# --- Late rows -----------------------------------------------------------------------------------


def test_late_rows_are_counted_and_go_to_the_late_output_as_they_came():
    h = harness(config(late=True))
    push(h, (5, "a", 1))
    h.advance(9_999)
    push(h, (9_999, "a", 2, 0.5, "late"), (10_000, "a", 3), (-5, "b", 4))
    assert h.late_rows == 2
    assert h.rows("late") == batch(("a", 2, 0.5, "late"), ("b", 4)).to_pylist()
    h.finish()
    assert [(row["window_start"], row["n"]) for row in h.rows()] == [(0, 1), (10_000, 1)]


def test_late_rows_are_counted_without_a_late_output():
    h = harness(config())
    h.finish()
    push(h, (5, "a"), (1 << 60, "b"))
    assert h.late_rows == 2
    assert h.out.emitted == []


# --- Time ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("offset_ms", [0, 3, 9])
@pytest.mark.parametrize("spread_ms", [0, 1, 9, 25])
def test_a_window_is_the_one_that_contains_the_time(offset_ms, spread_ms):
    """Goal: batches that lie in one window, which are not looked at row by row, and others."""
    window = Tumbling(10, offset_ms)
    for earliest in range(-25, 25):
        times = np.arange(earliest, earliest + spread_ms + 1)
        starts = window.starts(times)
        assert ((starts <= times) & (times < starts + 10)).all()
        assert ((starts - offset_ms) % 10 == 0).all()


def test_negative_times_and_offsets():
    h = harness(config(window=tumbling("10 s", offset=-3_000)))
    push(h, (-3_001, "a"), (-3_000, "a"), (6_999, "a"), (7_000, "a"), (-13_000, "a"))
    h.finish()
    assert [(row["window_start"], row["n"]) for row in h.rows()] == [(-13_000, 2), (-3_000, 2), (7_000, 1)]


@pytest.mark.parametrize("time", [(1 << 63) - 1, -(1 << 63)])
def test_a_time_whose_window_would_not_fit_is_an_error(time):
    h = harness(config())
    with pytest.raises(Fatal, match="ms since the epoch"):
        push(h, (time, "a"))


# --- Restore -------------------------------------------------------------------------------------


@pytest.mark.parametrize("parallelism", [1, 2, 3, 4])
def test_a_window_that_fired_before_the_snapshot_does_not_fire_again(parallelism):
    """Goal: after a restore the watermark starts again from the minimum; what has fired stays fired."""
    users = [f"u{i}" for i in range(50)]
    h = harness(config(late=True), 2)
    push(h, *((1, user) for user in users), *((10_001, user) for user in users))
    h.advance(9_999)
    assert len(h.rows()) == 50
    h = harness(config(late=True), parallelism, h.snapshot())
    push(h, *((2, user) for user in users), *((10_002, user) for user in users))
    assert h.late_rows == len(h.rows("late")) == 50
    h.advance(-100)
    h.advance(19_999)
    assert {(row["user"], row["window_start"], row["n"]) for row in h.rows()} == {
        (user, 10_000, 2) for user in users
    }


def test_each_key_group_keeps_the_event_time_of_the_subtask_it_came_from():
    """Goal: one subtask restored from two whose watermarks differ neither drops nor doubles. Twice, since
    the floors must survive a snapshot that is taken before the watermark has passed them."""
    users = [f"u{i}" for i in range(50)]
    h = harness(config(), 2)
    push(h, *((1, user) for user in users))
    h.advance(9_999, subtask=0)
    fired = {row["user"] for row in h.rows()}
    assert 0 < len(fired) < 50
    for _ in range(2):
        h = harness(config(), 1, h.snapshot())
    push(h, *((2, user) for user in users))
    assert h.late_rows == len(fired)
    h.finish()
    assert {(row["user"], row["n"]) for row in h.rows()} == {(user, 2) for user in users if user not in fired}


def test_an_empty_state_still_says_how_far_event_time_was():
    h = harness(config())
    push(h, (1, "a"))
    h.advance(1_000_000)
    [state] = h.snapshot()
    assert state.tables == {}
    h = harness(config(), 1, [state])
    push(h, (1, "a"))
    assert h.late_rows == 1


def test_a_snapshot_does_not_change_while_the_operator_goes_on():
    every = {"n": count(), "t": sum_("amount"), "m": mean("price"), "f": first("note"), "x": max_("note")}
    h = harness(config(**every))
    push(h, *((i % 20_000, f"u{i % 500}", i, 1.0, f"n{i % 7}") for i in range(3_000)))
    states = [operator.snapshot() for operator in h.subtasks]
    expected = harness(config(**every), 1, h.snapshot())
    push(h, *((i, f"u{i}", -i, 2.0, "zzz") for i in range(500)))  # in place: nothing has to grow
    push(h, *((i % 30_000, f"u{i}", -i, 2.0, "zzz") for i in range(9_000)))
    h.advance(9_999)
    push(h, *((10_000 + i, f"w{i}", -i, 2.0, "zzz") for i in range(9_000)))
    restored = harness(config(**every), 1, [stored(state) for state in states])
    restored.finish()
    expected.finish()
    assert restored.rows() == expected.rows()
    assert len(restored.rows()) == 500


@pytest.mark.parametrize("window", [tumbling("10 s"), sliding("10 s", "5 s")])
def test_results_come_by_window_and_then_in_the_order_in_which_keys_came(window):
    rows = [(i * 7 % 40_000, f"u{i % 300}", i) for i in range(5_000)]
    found = []
    for arrival in (rows, rows[::-1]):
        h = harness(config(window=window, t=sum_("amount")))
        for row in arrival:
            push(h, row)
        h.finish()
        starts = [row["window_start"] for row in h.rows()]
        assert starts == sorted(starts)
        is_sliding = isinstance(window, Sliding)  # whose keys are known from one window to the next
        came = dict.fromkeys(user for at, user, _ in arrival if is_sliding or at < 10_000)
        assert [row["user"] for row in h.rows() if row["window_start"] == 0] == list(came)
        found.append(sorted(h.rows(), key=lambda row: (row["window_start"], row["user"])))
    assert found[0] == found[1]


@pytest.mark.parametrize("at_once", [1, 2, 3])
def test_windows_that_are_due_at_once_fire_each_with_its_own_start(at_once):
    h = harness(config())
    push(h, *((start + 1, user) for start in (0, 10_000, 20_000, 30_000) for user in "ab"))
    h.advance(10_000 * at_once - 1)
    starts = [start for start in (0, 10_000, 20_000)[:at_once] for _ in "ab"]
    assert [row["window_start"] for row in h.rows()] == starts
    assert [row["window_end"] for row in h.rows()] == [start + 10_000 for start in starts]
    times = [time for _, records in h.out.emitted for time in records.event_time.tolist()]
    assert times == [start + 9_999 for start in starts]
    h.finish()
    assert len(h.rows()) == 8


@pytest.mark.parametrize("at_once", [1, 2, 3])
def test_overlapping_windows_that_are_due_at_once_fire_each_at_its_own_time(at_once):
    reduced = WindowReduce("r", ("user",), sliding(10, 4), lambda total, row: row, SCHEMA)
    h = OperatorHarness(reduced.create, ["user"])
    push(h, (9, "a"))  # in the windows from 0, 4 and 8 on
    h.advance(9 + 4 * (at_once - 1))
    times = [time for _, records in h.out.emitted for time in records.event_time.tolist()]
    assert times == [9, 13, 17][:at_once]


def test_large_windows_are_emitted_in_bounded_pieces():
    h = harness(config())
    push(h, *((1, f"u{i}") for i in range(70_000)))
    h.finish()
    sizes = [len(records) for _, records in h.out.emitted]
    assert sum(sizes) == 70_000
    assert max(sizes) <= 32_768


# --- The graph -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("aggregates", "message"),
    [
        ({"n": sum_("amont")}, r"'totals'.*no column 'amont' \(did you mean 'amount'\?\)"),
        ({"n": sum_("note")}, "'note' is string, over which there is no sum_"),
        (
            {"n": mean(pl.col("amount").cast(pl.Decimal(9, 2)))},
            "there is no mean: cast it.*its sum_ is exact",
        ),
        ({"n": sum_(pl.col("prize") * 2)}, r"no column 'prize' \(did you mean 'price'\?\)"),
        ({"n": sum_(pl.col("price").sum())}, "one value for each row"),
        ({"n": sum_(pl.col("note") * 2)}, "arithmetic"),
        ({"user": count()}, "two output columns are called 'user'"),
        ({"window_end": count()}, "two output columns are called 'window_end'"),
        ({"n": "sum"}, "not an aggregate"),
        ({}, "at least one aggregate"),
    ],
)
def test_mistakes_are_refused_when_the_graph_is_built(aggregates, message):
    with pytest.raises(GraphError, match=message):
        WindowAggregate("totals", ("user",), tumbling("10 s"), aggregates, SCHEMA)


def test_keys_and_sizes_are_checked():
    with pytest.raises(GraphError, match=r"no key column 'usr' \(did you mean 'user'\?\)"):
        WindowAggregate("totals", ("usr",), tumbling("10 s"), {"n": count()}, SCHEMA)
    lists = pa.schema([("tags", pa.list_(pa.string()))])
    with pytest.raises(GraphError, match="can't be a key"):
        WindowAggregate("totals", ("tags",), tumbling("10 s"), {"n": count()}, lists)
    for size in (0, "ten", True, "0 s"):
        with pytest.raises(OptionError, match="size"):
            tumbling(size)


def test_columns_read_are_those_that_keys_and_aggregates_need():
    assert config(n=count(), t=sum_("amount")).columns_read == {"user", "amount"}
    assert config(n=max_(pl.col("price") * 2)).columns_read == {"user", "price"}
    assert config(late=True).columns_read == set(SCHEMA.names)


def test_event_time_begins_anew_behind_a_state_that_was_drained():
    h = harness(config())
    push(h, (1, "a"))
    h.finish()
    h = harness(config(), 1, h.snapshot())
    push(h, (1, "a"))
    assert h.late_rows == 0
