"""Functions of whole windows: what they are called with, what becomes of it, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest

from onceflow import Job, WatermarkStrategy, WindowBounds, count_window, session, tumbling
from onceflow.runtime.errors import GraphError, JobFailedError
from onceflow.runtime.functions.context import FunctionContext
from onceflow.testing import run


@dataclass(frozen=True)
class View:
    user: str
    seconds: int
    ts: int
    price: Decimal | None = None


@dataclass(frozen=True)
class Best:
    user: str
    start: int
    seconds: list[int]


def best(key: str, window: WindowBounds | None, views: list[View]) -> Iterator[Best]:
    assert all(isinstance(view, View) for view in views)
    yield Best(
        key, -1 if window is None else window.start, sorted((v.seconds for v in views), reverse=True)[:2]
    )


VIEWS = [View("ann", 5, 0), View("ann", 9, 10), View("ann", 7, 20), View("bob", 1, 5), View("ann", 3, 12_000)]


def views_of(job: Job, *rows: View) -> Any:
    return job.from_elements(*rows or VIEWS, watermarks=WatermarkStrategy.monotonous("ts"), uid="views")


def test_a_function_gets_the_key_the_window_and_its_records() -> None:
    job = Job("job")
    rows = views_of(job).key_by("user").window(tumbling("10 s")).process(best).collect()
    job.run(master="threads[1]")
    assert sorted(rows, key=lambda row: (row.start, row.user)) == [
        Best("ann", 0, [9, 7]),
        Best("bob", 0, [1]),
        Best("ann", 10_000, [3]),
    ]


def test_windows_without_bounds_or_key_have_none() -> None:
    job = Job("job")
    views = views_of(job)
    pairs = views.key_by("user").window(count_window(2)).process(best).collect()

    def all_of(key: None, window: WindowBounds, views: list[View]) -> list[Best]:
        return [Best(repr(key), window.max_timestamp, [view.seconds for view in views])]

    everyone = views.window_all(session("5 s")).process(all_of).collect()
    job.run(master="threads[1]")
    assert pairs == [Best("ann", -1, [9, 5]), Best("ann", -1, [7, 3])]
    assert everyone == [Best("None", 5_019, [5, 9, 7, 1]), Best("None", 16_999, [3])]


def test_a_key_of_several_columns_is_a_tuple_and_values_keep_their_types() -> None:
    job = Job("job")
    seen: list[Any] = []

    def look(key: Any, window: WindowBounds, views: list[View]) -> list[Best]:
        seen.append((key, [view.price for view in views]))
        return []

    rows = views_of(job, View("ann", 5, 0, Decimal("1.50")), View("ann", 5, 1))
    rows.key_by("user", "seconds").window(tumbling("1 s")).process(look, returns=Best).collect()
    job.run(master="threads[1]")
    assert seen == [(("ann", 5), [Decimal("1.50"), None])]


def test_what_was_collected_is_there_after_a_restore_and_late_rows_go_aside() -> None:
    job = Job("job")
    windows = views_of(job).key_by("user").window(tumbling("10 s")).late_to("late")
    tops = windows.process(best, uid="best")
    tops.print(uid="tops")
    tops.side_output("late").print(uid="late")
    with run(job, views=[View("ann", 5, 0), View("ann", 9, 10)]) as test:
        test.restart()
        test.push(views=[View("ann", 11, 20)])
        test.advance_to("10 s")
        test.push(views=[View("ann", 1, 30)])
        assert test.records("tops", Best) == [Best("ann", 0, [11, 9])]
        assert test.records("late", View) == [View("ann", 1, 30)]


class Counted:
    """Is opened and closed with its subtask."""

    def open(self, ctx: FunctionContext) -> None:
        self.prefix = "of "

    def __call__(self, key: str, window: WindowBounds, views: list[View]) -> Iterator[Best]:
        yield Best(self.prefix + key, window.start, [len(views)])


def test_a_function_object_has_its_life() -> None:
    job = Job("job")
    rows = views_of(job).key_by("user").window(tumbling("1 min")).process(Counted()).collect()
    job.run(master="threads[1]")
    assert sorted(row.user for row in rows) == ["of ann", "of bob"]


def test_a_function_that_fails_is_named_with_its_window() -> None:
    job = Job("job")

    def fails(key: str, window: WindowBounds, views: list[View]) -> list[Best]:
        raise RuntimeError("no")

    views_of(job).key_by("user").window(tumbling("10 s")).process(fails).collect()
    with pytest.raises(JobFailedError, match=r"fails failed on .*WindowBounds\(start=0.*RuntimeError: no"):
        job.run(master="threads[1]")


def two(key: str, views: list[View]) -> list[Best]:
    return []


def of_numbers(key: str, window: WindowBounds, views: list[int]) -> list[Best]:
    return []


@dataclass(frozen=True)
class Other:
    cost: int


def of_others(key: str, window: WindowBounds, views: list[Other]) -> list[Best]:
    return []


def yields_numbers(key: str, window: WindowBounds, views: list[View]) -> list[int]:
    return []


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (two, r"two can't be called with a key, a window and its records .*: write it as"),
        (of_numbers, "takes views of int; expected a record type"),
        (of_others, "no column 'cost'"),
        (yields_numbers, "yields int, which is not a record type"),
        ("best", "expected a function"),
    ],
)
def test_what_can_not_work_is_refused(function: Any, said: str) -> None:
    job = Job("job")
    with pytest.raises(GraphError, match=said):
        views_of(job).key_by("user").window(tumbling("10 s")).process(function)
