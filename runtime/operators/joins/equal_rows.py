"""Which of the rows that a side of a join keeps are taken back by rows that are equal to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
import pyarrow as pa

from onceflow.runtime.operators.joins.runs import EVER_MS, Run, pairs
from onceflow.runtime.records import Indices, Int64s


@dataclass(frozen=True, slots=True)
class Found:
    """For each row that takes one back, the run of that one and its place there; run -1: there is none."""

    run: Indices
    place: Indices


def equal_rows(runs: Sequence[Run], batch: pa.RecordBatch, row: Int64s, earliest: Int64s) -> Found:
    """One row for each of the batch that is equal to it in all columns, null being equal to null, and at
    `earliest` or later. Of several the latest, and each for one row only, the first that comes. `row`: the
    number of each one's key."""
    found = Found(np.full(len(row), -1), np.zeros(len(row), np.int64))
    number, place = _of_keys(runs, np.unique(row))
    if not len(number):
        return found
    kept = [run.batch.take(pa.array(place[number == n])) for n, run in enumerate(runs)]
    time = np.concatenate([runs[n].time[place[number == n]] for n in range(len(runs))])
    rank = _ranks(runs, number, place, time)
    for group in _groups(pa.Table.from_batches([*kept, batch]), len(number)):
        there = [n for n in group if n < len(number)]
        there.sort(key=rank.__getitem__, reverse=True)
        for n in group[len(there) :]:
            asks = n - len(number)
            if there and time[there[0]] >= earliest[asks]:
                taken = there.pop(0)
                found.run[asks], found.place[asks] = number[taken], place[taken]
    return found


def _of_keys(runs: Sequence[Run], keys: Int64s) -> tuple[Indices, Indices]:
    """(number of the run, place in it) of all rows of these keys, run by run."""
    numbers, places = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for number, run in enumerate(runs):
        begin, counts = run.find(keys, np.full(len(keys), -EVER_MS), np.full(len(keys), EVER_MS))
        for _, place in pairs(begin, counts):
            if run.is_gone is not None:
                place = place[~run.is_gone[place]]
            numbers.append(np.full(len(place), number))
            places.append(place)
    return np.concatenate(numbers), np.concatenate(places)


def _ranks(runs: Sequence[Run], number: Indices, place: Indices, time: Int64s) -> list[int]:
    """Which of the rows are taken first: the higher the sooner. Nothing in it depends on how runs are cut."""
    beside = [
        np.concatenate([run.beside[name][place[number == n]] for n, run in enumerate(runs)])
        for name in sorted(runs[0].beside, reverse=True)
    ]
    order = np.lexsort([*beside, time])
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.arange(len(order))
    return list(ranks.tolist())


def _groups(table: pa.Table, kept: int) -> list[list[int]]:
    """The numbers of rows that are equal, lowest first, where there are some of the first `kept` ones and
    some of the others."""
    names = [str(n) for n in range(table.num_columns)]
    frame = pl.from_arrow(table.rename_columns(names))
    assert isinstance(frame, pl.DataFrame)
    groups = frame.with_row_index("row").group_by(names, maintain_order=True).agg("row")
    both = groups.filter((pl.col("row").list.first() < kept) & (pl.col("row").list.last() >= kept))
    return list(both["row"].to_list())
