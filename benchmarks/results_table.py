"""From runs to a comparison: medians, ratios against onceflow, the table, the JSON. Measures nothing."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table

from benchmarks.engine_run import EngineRun
from benchmarks.peers.peer import Peer

OURS = "onceflow"


@dataclass(frozen=True, slots=True)
class Line:
    """One engine's runs in short. Figures are medians over its runs; None if none has figures."""

    peer: str
    title: str
    guarantee: str
    outcome: str
    """"exact", what was wrong in the worst run, or why there is no figure."""
    is_right: bool
    records: int
    k_per_cpu_s: float | None = None
    k_per_cpu_s_range: tuple[float, float] | None = None
    k_per_s: float | None = None
    start_s: float | None = None
    rss_mb: float | None = None
    ratio: float | None = None
    """How many times as many records per CPU-second onceflow handled in the same comparison."""
    wall_ratio: float | None = None
    """The same for records per second of wall clock."""


def lines(peers: Sequence[Peer], runs: Sequence[EngineRun]) -> list[Line]:
    """One for each peer that has runs, in the peers' order. Ratios need a figure of onceflow's own."""
    mine = [run for run in runs if run.peer == OURS and run.has_figure]
    ours = statistics.median(run.k_per_cpu_s for run in mine) if mine else None
    ours_wall = statistics.median(run.k_per_s for run in mine) if mine else None
    return [
        _line(peer, theirs, ours, ours_wall)
        for peer in peers
        if (theirs := [run for run in runs if run.peer == peer.name])
    ]


def _line(peer: Peer, runs: Sequence[EngineRun], ours: float | None, ours_wall: float | None) -> Line:
    about = (peer.name, peer.title, peer.guarantee)
    measured = [run for run in runs if run.has_figure]
    if not measured:
        return Line(*about, runs[-1].reason, False, runs[-1].records)
    per_cpu = [run.k_per_cpu_s for run in measured]
    median, wall = statistics.median(per_cpu), statistics.median(run.k_per_s for run in measured)
    return Line(
        *about,
        outcome=_outcome(runs),
        is_right=all(run.verdict is not None and run.verdict.is_right for run in runs),
        records=measured[-1].records,
        k_per_cpu_s=median,
        k_per_cpu_s_range=(min(per_cpu), max(per_cpu)),
        k_per_s=wall,
        start_s=statistics.median(run.start_s for run in measured),
        rss_mb=statistics.median(run.rss_mb for run in measured),
        ratio=ours / median if ours else None,
        wall_ratio=ours_wall / wall if ours_wall else None,
    )


def _outcome(runs: Sequence[EngineRun]) -> str:
    """The worst of all runs: a result that is right twice of three times is not right."""
    failed = [run.reason for run in runs if run.verdict is None]
    verdicts = [run.verdict for run in runs if run.verdict is not None]
    wrong = [verdict for verdict in verdicts if not verdict.is_right]
    if wrong:
        return str(max(wrong, key=lambda verdict: verdict.missing + verdict.wrong + verdict.doubled))
    return f"{failed[0]} (in {len(failed)} of {len(runs)} runs)" if failed else "exact"


def table(found: Sequence[Line], unavailable: dict[str, str]) -> Table:
    """For the terminal: the fastest per CPU-second first, then those without a figure."""
    shown = Table(title="thousands of records, medians; ratio: onceflow to this one")
    for name in ("engine", "guarantee", "result"):
        shown.add_column(name)
    for name in ("records", "k/CPU-s", "(range)", "ratio", "k/s", "ratio", "start s", "RSS MB"):
        shown.add_column(name, justify="right")
    for line in sorted(found, key=lambda line: -(line.k_per_cpu_s or 0.0)):
        low, high = line.k_per_cpu_s_range or (None, None)
        shown.add_row(
            line.title,
            line.guarantee,
            f"[{'green' if line.is_right else 'red'}]{line.outcome}",
            f"{line.records:,}",
            *(_number(line.k_per_cpu_s), f"{_number(low)}-{_number(high)}", _number(line.ratio, 1)),
            *(_number(line.k_per_s), _number(line.wall_ratio, 1)),
            *(_number(line.start_s, 1), _number(line.rss_mb)),
        )
    for name, reason in unavailable.items():
        shown.add_row(name, "", f"[yellow]not run: {reason}")
    return shown


def _number(value: float | None, digits: int = 0) -> str:
    return "-" if value is None else f"{value:,.{digits if value < 1000 else 0}f}"


def document(
    settings: dict[str, Any],
    found: Sequence[Line],
    runs: Sequence[EngineRun],
    unavailable: dict[str, str],
) -> dict[str, Any]:
    """What is kept as JSON: everything that was measured."""
    return {
        "benchmark": "compare",
        **settings,
        "engines": [asdict(line) for line in found],
        "unavailable": unavailable,
        "runs": [asdict(run) for run in runs],
    }
