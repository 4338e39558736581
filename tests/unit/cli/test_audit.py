"""The auditor finds every planted fault, and nothing in a right output."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from typing import Any

import polars as pl
import pytest

from onceflow.cli.audit import (
    Aggregate,
    Columns,
    Findings,
    RawRecords,
    Totals,
    WindowedTotals,
    compare,
    compare_keys,
    find_doubled,
    find_gaps,
)
from onceflow.runtime.errors import UsageError

SPEC = WindowedTotals(
    group_by=("user",),
    time="ts",
    window_ms=10_000,
    window_end="window_end",
    aggregates=(
        Aggregate("count", "count"),
        Aggregate("total", "sum", "amount"),
        Aggregate("least", "min", "amount"),
        Aggregate("most", "max", "amount"),
    ),
)
Row = dict[str, Any]


def raw(rows: list[Row | bytes]) -> RawRecords:
    values = [row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows]
    return RawRecords(values, 0, list(range(len(values))))


def purchases(count: int, seed: int = 7) -> list[Row]:
    chance = random.Random(seed)
    return [
        {
            "user": f"u{chance.randrange(50)}",
            "ts": chance.randrange(-20_000, 60_000),
            "amount": chance.randrange(900),
        }
        for _ in range(count)
    ]


def right_output(source: list[Row]) -> list[Row]:
    """The output computed in plain Python: the judge of the judge."""
    amounts: dict[tuple[str, int], list[int]] = defaultdict(list)
    for row in source:
        amounts[row["user"], row["ts"] - row["ts"] % 10_000 + 10_000].append(row["amount"])
    return [
        {"user": user, "window_end": end, "count": len(a), "total": sum(a), "least": min(a), "most": max(a)}
        for (user, end), a in amounts.items()
    ]


def judge(source: list[Row | bytes], output: list[Row | bytes], spec: WindowedTotals = SPEC) -> Findings:
    findings = Findings()
    totals = Totals(spec, findings)
    for start in range(0, len(source), 700):
        totals.add(raw(source[start : start + 700]))
    columns = Columns(spec.group_by, [a.field for a in spec.aggregates], [spec.window_end])
    compare(totals.expected(), columns.frame(raw(output), findings), spec, findings)
    return findings


def counts(findings: Findings) -> tuple[int, int, int, int]:
    return findings.missing, findings.doubled, findings.wrong, findings.unreadable


def test_a_right_output_is_clean() -> None:
    source = purchases(5_000)
    assert judge(source, right_output(source)).is_clean


def test_a_missing_row_is_found_and_named() -> None:
    source = purchases(2_000)
    output = right_output(source)
    lost = output.pop(17)
    findings = judge(source, output)
    assert counts(findings) == (1, 0, 0, 0)
    assert findings.samples["missing"][0]["user"] == lost["user"]
    assert findings.samples["missing"][0]["expected total"] == lost["total"]


def test_a_doubled_row_is_found() -> None:
    source = purchases(2_000)
    output = right_output(source)
    assert counts(judge(source, [*output, output[3], output[3]])) == (0, 2, 0, 0)


@pytest.mark.parametrize("name", ["count", "total", "least", "most"])
def test_a_wrong_number_is_found(name: str) -> None:
    source = purchases(2_000)
    output = right_output(source)
    output[5] = {**output[5], name: output[5][name] + 1}
    findings = judge(source, output)
    assert counts(findings) == (0, 0, 1, 0)
    assert findings.samples["wrong"][0][name] == output[5][name]


def test_a_row_nobody_expects_is_wrong() -> None:
    source = purchases(500)
    stray = {"user": "nobody", "window_end": 10_000, "count": 1, "total": 1, "least": 1, "most": 1}
    assert counts(judge(source, [*right_output(source), stray])) == (0, 0, 1, 0)


def test_a_window_emitted_in_two_halves_is_doubled_and_wrong_twice() -> None:
    source = purchases(2_000)
    output = right_output(source)
    half = {**output[0], "total": output[0]["total"] - 5}
    other = {**output[0], "total": 5}
    assert counts(judge(source, [half, other, *output[1:]])) == (0, 1, 2, 0)


def test_a_null_total_is_wrong() -> None:
    source = purchases(500)
    output = right_output(source)
    output[0] = {**output[0], "total": None}
    assert counts(judge(source, output)) == (0, 0, 1, 0)


def test_unreadable_records_are_counted_and_named() -> None:
    source = purchases(500)
    findings = judge([*source, b'{"user":"u1","ts":'], [*right_output(source), b"\xff"])
    assert counts(findings) == (0, 0, 0, 2)
    assert findings.samples["unreadable"][0]["offset"] == 500


def test_two_objects_in_one_record_are_unreadable_not_two_rows() -> None:
    two = b'{"user":"u","ts":1,"amount":1},{"user":"u","ts":2,"amount":2}'
    assert judge([two], []).unreadable == 1


def test_an_empty_output_is_missing_everything() -> None:
    source = purchases(500)
    assert counts(judge(source, [])) == (len(right_output(source)), 0, 0, 0)


def test_an_empty_input_expects_nothing() -> None:
    assert judge([], []).is_clean
    assert counts(judge([], right_output(purchases(1)))) == (0, 0, 1, 0)


def test_windows_after_the_bound_are_not_judged() -> None:
    source = purchases(2_000)
    spec = WindowedTotals(SPEC.group_by, "ts", 10_000, "window_end", SPEC.aggregates, until_ms=20_000)
    closed = [row for row in right_output(source) if row["window_end"] <= 20_000]
    assert judge(source, closed, spec).is_clean
    assert counts(judge(source, closed[1:], spec)) == (1, 0, 0, 0)


def test_sums_beyond_64_bits_are_exact() -> None:
    source = [{"user": "u", "ts": 5, "amount": 2**62} for _ in range(4)]
    output = right_output(source)
    assert judge(source, output).is_clean
    output[0]["total"] += 1
    assert counts(judge(source, output)) == (0, 0, 1, 0)


def test_fractions_may_differ_in_the_last_digits_only() -> None:
    source = [{"user": "u", "ts": 5, "amount": 0.1} for _ in range(10)]
    output = right_output(source)
    output[0]["total"] = 1.0
    assert judge(source, output).is_clean
    output[0]["total"] = 1.001
    assert counts(judge(source, output)) == (0, 0, 1, 0)


def test_a_null_key_is_a_key() -> None:
    source: list[Row | bytes] = [{"user": None, "ts": 5, "amount": 1}, {"user": "u", "ts": 5, "amount": 1}]
    output: list[Row | bytes] = [*right_output([row for row in source if isinstance(row, dict)])]
    assert judge(source, output).is_clean
    assert counts(judge(source, output[1:])) == (1, 0, 0, 0)


def test_a_key_of_another_type_in_the_output_is_not_the_same_key() -> None:
    source = [{"user": 1, "ts": 5, "amount": 1}]
    output = [{**right_output(source)[0], "user": "one"}]
    assert counts(judge(source, output)) == (1, 0, 1, 0)


def test_a_field_of_several_types_is_refused_by_name() -> None:
    with pytest.raises(UsageError, match="user holds int and str values"):
        judge([{"user": 1, "ts": 5, "amount": 1}, {"user": "x", "ts": 5, "amount": 1}], [])


def frame(rows: list[Row], key: list[str], numbers: list[str] | None = None) -> pl.DataFrame:
    return Columns(key, [], numbers or []).frame(raw(rows), Findings())


def test_gaps_and_duplicates_of_a_sequence_are_found_within_each_key() -> None:
    rows = [
        {"k": k, "n": n} for k in "ab" for n in range(100) if (k, n) not in {("a", 40), ("b", 7), ("b", 8)}
    ]
    findings = Findings()
    found = frame([*rows, {"k": "a", "n": 5}], ["k"], ["n"])
    find_doubled(found, ["k", "n"], findings)
    find_gaps(found, ["k"], "n", findings)
    assert counts(findings) == (3, 1, 0, 0)


def test_a_sequence_without_key_has_one_gap() -> None:
    findings = Findings()
    find_gaps(frame([{"n": n} for n in (1, 2, 5, 3)], [], ["n"]), [], "n", findings)
    assert counts(findings) == (1, 0, 0, 0)
    assert findings.samples["missing"] == [{"to": 4, "from": 4}]


def test_copied_keys_must_come_as_often_as_in_the_input() -> None:
    source = [{"id": n} for n in [*range(10), 3]]
    output = [{"id": n} for n in [*range(1, 10), 3, 5, 99]]
    findings = Findings()
    compare_keys(frame(source, ["id"]), frame(output, ["id"]), ["id"], findings)
    assert counts(findings) == (1, 1, 1, 0)
