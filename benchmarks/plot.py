"""The comparison as bars, an SVG beside its JSON.

python benchmarks/plot.py benchmarks/results/compare-main.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def plot(result: dict[str, Any], target: Path) -> None:
    """Records per CPU-second of each engine, the range of its runs as whiskers; wrong results hatched.

    ImportError without matplotlib (dependency group `bench`).
    """
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "onceflow"  # the same figures give the same file
    from matplotlib import pyplot

    engines = sorted(
        (engine for engine in result["engines"] if engine["k_per_cpu_s"] is not None),
        key=lambda engine: engine["k_per_cpu_s"],
    )
    figure, axes = pyplot.subplots(figsize=(9, 1.6 + 0.5 * len(engines)))
    for place, engine in enumerate(engines):
        median, (low, high) = engine["k_per_cpu_s"], engine["k_per_cpu_s_range"]
        is_ours = engine["peer"] == "onceflow"
        axes.barh(
            place,
            median,
            color="#2a6f97" if is_ours else "#b8c4cc",
            hatch=None if engine["is_right"] else "///",
            edgecolor="#5c6770",
            linewidth=0.5,
            xerr=[[median - low], [high - median]],
            ecolor="#333333",
            capsize=2,
        )
        ratio = f"  1 / {engine['ratio']:,.1f}" if engine["ratio"] and not is_ours else ""
        axes.text(high, place, f"  {median:,.0f}{ratio}", va="center", fontsize=9)
    axes.set_yticks(range(len(engines)), [engine["title"] for engine in engines], fontsize=9)
    axes.set_xlim(0, 1.2 * max((engine["k_per_cpu_s_range"][1] for engine in engines), default=1))
    axes.set_xlabel("thousands of records per CPU-second, all processes of the job (hatched: wrong results)")
    axes.set_title(f"workload {result['workload']}, {result['date'][:10]}, {result['machine']}", fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(target, metadata={"Date": None})
    pyplot.close(figure)


if __name__ == "__main__":
    source = Path(sys.argv[1])
    plot(json.loads(source.read_text(encoding="utf-8")), source.with_suffix(".svg"))
