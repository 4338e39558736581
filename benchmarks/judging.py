"""Whether an engine's output is right: the code of `onceflow verify`, which shares none with any engine."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from benchmarks.peers.peer import MAIN, MAP
from benchmarks.workload import CLOSING_MS, START_MS
from onceflow.cli.audit import Aggregate, Columns, Findings, Totals, WindowedTotals, compare, compare_keys
from onceflow.cli.audit_topics import TopicReader

WINDOWS = WindowedTotals(
    group_by=("user",),
    time="ts",
    window_ms=10_000,
    window_end="window_end",
    aggregates=(Aggregate("count", "count"), Aggregate("total", "sum", "amount")),
    # The closing records come two hours later. No engine closes their windows, for nothing comes after them.
    until_ms=START_MS + CLOSING_MS // 2,
)
COPIED = ("user", "ts", "item", "amount")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was wrong with an output of `expected` rows. `found` counts its rows, doubled ones too."""

    expected: int
    found: int
    missing: int
    doubled: int
    wrong: int
    unreadable: int

    @property
    def is_right(self) -> bool:
        return not (self.missing or self.doubled or self.wrong or self.unreadable)

    def __str__(self) -> str:
        if self.is_right:
            return "exact"
        kinds = ("wrong", "missing", "doubled", "unreadable")
        named = [f"{getattr(self, kind):,} {kind}" for kind in kinds if getattr(self, kind)]
        return f"WRONG: {', '.join(named)} of {self.expected:,}"


class Judge:
    """Knows the answer for one input topic and workload, computed once from the topic itself."""

    def __init__(self, reader: TopicReader, input_topic: str, workload: str) -> None:
        self._reader = reader
        self._workload = workload
        findings = Findings()
        if workload == MAIN:
            totals = Totals(WINDOWS, findings)
            for raw in reader.chunks(input_topic, _quietly):
                totals.add(raw)
            self._answer = totals.expected()
        else:
            self._answer = self._rows(input_topic, findings)
            if workload == MAP:
                self._answer = self._answer.with_columns(pl.col("amount") + 1)
        assert findings.is_clean, f"the input is damaged: {findings}"

    @property
    def expected(self) -> int:
        """Rows of the right answer."""
        return len(self._answer)

    def verdict(self, output: str) -> Verdict:
        findings = Findings()
        if self._workload == MAIN:
            columns = Columns(WINDOWS.group_by, ["count", "total"], [WINDOWS.window_end])
            frames = [columns.frame(raw, findings) for raw in self._reader.chunks(output, _quietly)]
            found = pl.concat([columns.empty(), *frames], how="vertical_relaxed")
            compare(self._answer, found, WINDOWS, findings)
            found = found.filter(pl.col(WINDOWS.window_end) <= WINDOWS.until_ms)
        else:
            found = self._rows(output, findings)
            compare_keys(self._answer, found, COPIED, findings)
        counts = (findings.missing, findings.doubled, findings.wrong, findings.unreadable)
        return Verdict(self.expected, len(found), *counts)

    def _rows(self, topic: str, findings: Findings) -> pl.DataFrame:
        columns = Columns(["user", "item"], ["amount"], ["ts"])
        frames = [columns.frame(raw, findings) for raw in self._reader.chunks(topic, _quietly)]
        return pl.concat([columns.empty(), *frames], how="vertical_relaxed").select(COPIED)


def rows_visible(reader: TopicReader, topic: str) -> int:
    """How many committed records there are, transaction markers apart; reads them all."""
    return sum(len(raw.values) for raw in reader.chunks(topic, _quietly))


def _quietly(done: int, total: int) -> None:
    pass
