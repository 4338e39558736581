"""State under other keys is what a dictionary makes of it, merges included; and a job goes on with it."""

from __future__ import annotations

import operator
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import onceflow
from onceflow import Ctx, Job, KeyedProcess, ListState, MapState, ReducingState
from onceflow.runtime.errors import OptionError, UsageError
from onceflow.runtime.state_tables import merged_keys
from onceflow.runtime.testing.mutation import Mutant, mutated

Kept = dict[int, tuple[int, dict[str, int], list[int]]]
"""A sum, counts and a list by key."""


class Group(NamedTuple):
    group: str
    is_odd: bool


def group(number: int) -> Group:
    return Group(f"g{number % 5}", number % 2 == 1)


def groups(keys: pa.RecordBatch) -> pa.RecordBatch:
    numbers = keys.column("number").to_numpy()
    return pa.RecordBatch.from_pydict(
        {"group": [f"g{n}" for n in numbers % 5], "is_odd": pa.array(numbers % 2 == 1)}
    )


def together(key: Any, states: list[dict[str, Any]]) -> Mapping[str, Any]:
    counts: dict[str, int] = {}
    for state in states:
        for item, count in (state["counts"] or {}).items():
            counts[item] = counts.get(item, 0) + count
    return {
        "sum": sum(state["sum"] or 0 for state in states),
        "counts": counts,
        "every": [each for state in states for each in state["every"] or ()],
    }


def written(folder: str, kept: Kept) -> str:
    tables = {
        "sum": ("value", [{"number": k, "value": total} for k, (total, _, _) in kept.items()]),
        "counts": (
            "map",
            [{"number": k, "map_key": i, "value": n} for k, v in kept.items() for i, n in v[1].items()],
        ),
        "every": (
            "list",
            [{"number": k, "position": p, "value": n} for k, v in kept.items() for p, n in enumerate(v[2])],
        ),
    }
    columns = {"number": pa.int64(), "map_key": pa.string(), "position": pa.int64(), "value": pa.int64()}
    base = None
    for state, (kind, rows) in tables.items():
        wanted = {"value": ("number", "value"), "map": ("number", "map_key", "value")}
        names = wanted.get(kind, ("number", "position", "value"))
        table = pa.Table.from_pylist(rows, pa.schema([(name, columns[name]) for name in names]))
        target = f"{folder}/{state}"
        onceflow.write_state(target, "op", state, table, keys=["number"], kind=kind, base=base)
        base = target
    assert base is not None
    return base


def read(path: str) -> dict[Any, tuple[int, dict[str, int], list[int]]]:
    found: dict[Any, tuple[int, dict[str, int], list[int]]] = {}
    with onceflow.read_state(path) as state:
        for row in state.table("op", "sum").read().to_pylist():
            found[row["group"], row["is_odd"]] = (row["value"], {}, [])
        for row in state.table("op", "counts").read().to_pylist():
            found[row["group"], row["is_odd"]][1][row["map_key"]] = row["value"]
        for row in state.table("op", "every").read().to_pylist():
            found[row["group"], row["is_odd"]][2].append(row["value"])
    return found


def model(kept: Kept) -> dict[Any, tuple[int, dict[str, int], list[int]]]:
    found: dict[Any, tuple[int, dict[str, int], list[int]]] = {}
    for key in sorted(kept):
        total, counts, every = kept[key]
        sums, items, values = found.setdefault(tuple(group(key)), (0, {}, []))
        for item, count in counts.items():
            items[item] = items.get(item, 0) + count
        found[tuple(group(key))] = (sums + total, items, values + every)
    return found


def check(kept: Kept, function: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        base = written(folder, kept)
        onceflow.rekey_state(f"{folder}/new", base, "op", function, together)
        assert read(f"{folder}/new") == model(kept)
        with onceflow.read_state(f"{folder}/new") as state:  # each key is in the files of its key group
            for key in list(model(kept))[:2]:
                wanted = [{"group": key[0], "is_odd": key[1]}]
                assert state.table("op", "sum").read(wanted).num_rows == 1


items = st.dictionaries(st.sampled_from("abc"), st.integers(1, 9), min_size=1, max_size=3)
values = st.tuples(st.integers(-9, 9), items, st.lists(st.integers(0, 9), min_size=1, max_size=3))
SOME: Kept = {n: (n, {"a": n, "b": 1}, [n]) for n in range(1, 13)}


@settings(max_examples=25, deadline=None)
@given(
    st.dictionaries(st.integers(-20, 20), values, min_size=1, max_size=12), st.sampled_from([group, groups])
)
@example(SOME, group)
@example(SOME, groups)
@example({3: (1, {"a": 1}, [1])}, group)
def test_a_dictionary_has_the_same(kept: Kept, function: Any) -> None:
    check(kept, function)


def in_other_order(old: pa.RecordBatch, rows: Any) -> Any:
    return IN_ORDER(old, rows)[::-1]


def the_first(*given: Any) -> Any:
    return given[4]


IN_ORDER = merged_keys._in_order
ONE = lambda keys: np.zeros(keys.num_rows, np.uint64)  # noqa: E731


@pytest.mark.parametrize(
    "mutant",
    [
        Mutant("only the first of those that meet counts", [(merged_keys, "_states", the_first)]),
        Mutant("they come as they lie", [(merged_keys, "_in_order", in_other_order)]),
        Mutant("all keys are one", [(merged_keys, "identities", ONE)]),
    ],
    ids=lambda mutant: mutant.title,
)
def test_keys_that_are_merged_wrongly_are_found(mutant: Mutant) -> None:
    with mutated(mutant), pytest.raises(AssertionError):
        check(SOME, group)


@dataclass(frozen=True)
class Item:
    group: str
    is_odd: bool
    item: str


class Counts(KeyedProcess[Any, Item, Item]):
    sum = ReducingState("sum", int, operator.add)
    counts = MapState("counts", str, int)
    every = ListState("every", int)

    def process(self, record: Item, ctx: Ctx) -> Iterator[Item]:
        self.sum.add(1_000)
        self.counts.put(record.item, self.counts.get(record.item, 0) + 1)
        yield Item(f"{self.sum.get()}", record.is_odd, f"{sorted(self.counts.items())} {self.every.get()}")


def test_a_job_goes_on_with_it(tmp_path: Any) -> None:
    base = written(str(tmp_path), {1: (1, {"a": 1}, [1]), 11: (2, {"a": 5}, [2, 3]), 2: (4, {"b": 1}, [4])})
    onceflow.rekey_state(f"{tmp_path}/new", base, "op", group, together)
    job = Job("counts")
    made = job.from_elements(Item("g1", True, "a"), Item("g2", False, "c"))
    rows = made.key_by("group", "is_odd").process(Counts(), uid="op").collect()
    job.run(f"{tmp_path}/ck", master="threads[2]", start_from=f"{tmp_path}/new")
    assert sorted((row.group, row.item) for row in rows) == [
        ("1003", "[('a', 7)] [1, 2, 3]"),
        ("1004", "[('b', 1), ('c', 1)] [4]"),
    ]


def test_a_job_begins_with_other_keys(tmp_path: Any) -> None:
    """An option of its start says so, which a start after a crash is given again."""
    base = written(str(tmp_path), {1: (1, {"a": 1}, [1]), 11: (2, {"a": 5}, [2, 3]), 2: (4, {"b": 1}, [4])})

    def start(rekey: Any, *items: Item, **options: Any) -> list[Any]:
        job = Job("counts")
        made = job.from_elements(*items)
        rows = made.key_by("group", "is_odd").process(Counts(), uid="op").collect()
        options = {"start_from": base, "rekey": rekey, **options}
        job.run(f"{tmp_path}/ck", master="threads[2]", restart="none", **options)
        return sorted((row.group, row.item) for row in rows)

    one = Item("g1", True, "a")
    with pytest.raises(UsageError, match="has the key number int64, in the program group string"):
        start(None, one)
    with pytest.raises(UsageError, match=r"both become .*: give a merge function"):
        start({"op": group}, one)
    with pytest.raises(UsageError, match="the base has no state of 'opp'"):
        start({"opp": group}, one)
    with pytest.raises(OptionError, match=r"--rekey op=.*group,together changes what a job begins with"):
        start({"op": (group, together)}, one, start_from=None)
    with pytest.raises(OptionError, match="write a function of the key, or"):
        start({"op": "group"}, one)
    assert start({"op": (group, together)}, one) == [("1003", "[('a', 7)] [1, 2, 3]")]
    with pytest.raises(UsageError, match=r"was started with --rekey op=.*group,together, and what"):
        start({"op": groups}, one)


def own_group(number: int) -> Group:
    return Group(f"g{number}", number % 2 == 1)


@pytest.mark.parametrize("max_parallelism", [128, 12])
def test_its_files_are_in_no_checkpoints_way(max_parallelism: int, tmp_path: Any) -> None:
    """Rows in all parts of the operator: the job writes files of the same attempt, operator and subtasks.
    With 12 key groups in place of 128 parts have groups in common."""
    base = written(str(tmp_path), {n: (n, {"a": 1}, [n]) for n in range(64)})
    job = Job("counts", max_parallelism=max_parallelism)
    made = job.from_elements(*(Item(f"g{n}", n % 2 == 1, "b") for n in range(64)))
    rows = made.key_by("group", "is_odd").process(Counts(), uid="op").collect()
    options: dict[str, Any] = {"start_from": base, "rekey": {"op": own_group}, "restart": "none"}
    job.run(f"{tmp_path}/ck", master="threads[2]", **options)
    assert {row.group for row in rows} == {f"{1_000 + n}" for n in range(64)}
    with onceflow.read_state(f"{tmp_path}/ck", 0) as state:
        assert state.table("op", "sum").read().num_rows == 64


def wide(number: int) -> str:
    return f"{number:04d}"


def untold(number: int):  # type: ignore[no-untyped-def]
    return number


def fails(number: int) -> str:
    raise ValueError("it is not to be")


def short(keys: pa.RecordBatch) -> pa.RecordBatch:
    return keys.slice(0, 1)


def wrong(key: Any, states: Any) -> dict[str, Any]:
    return {"total": 3}


@pytest.mark.parametrize(
    ("key", "merge", "said"),
    [
        (
            group,
            None,
            r"keys .*: 2.* and .*: 12.* both become .*'g2'.*: give a merge function",
        ),
        (untold, None, "annotate what it returns"),
        (fails, None, "fails failed on the keys: ValueError: it is not to be"),
        (short, None, "has to return a RecordBatch with a row for each of 12 keys"),
        (group, wrong, "give a dictionary with some of sum, counts, every"),
    ],
)
def test_what_is_refused_leaves_nothing(key: Any, merge: Any, said: str, tmp_path: Any) -> None:
    base = written(str(tmp_path), SOME)
    with pytest.raises(UsageError, match=said):
        onceflow.rekey_state(f"{tmp_path}/new", base, "op", key, merge)
    onceflow.rekey_state(f"{tmp_path}/new", base, "op", wide)
    with onceflow.read_state(f"{tmp_path}/new") as state:
        assert {row["number"] for row in state.table("op", "sum").read().to_pylist()} == set(map(wide, SOME))


def test_only_process_functions(tmp_path: Any) -> None:
    base = written(str(tmp_path), SOME)
    with pytest.raises(UsageError, match=r"the base has no state of 'opp' \(did you mean 'op'\?\)"):
        onceflow.rekey_state(f"{tmp_path}/new", base, "opp", wide)
    with pytest.raises(UsageError, match="the key is that of all states of 'op', not of 'sum' alone"):
        onceflow.rekey_state(f"{tmp_path}/new", base, "op.sum", wide)
