"""What a benchmark leaves behind."""

from __future__ import annotations

import json
import re
from pathlib import Path

from benchmarks.kept_results import RESULTS, keep


def test_a_result_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    keep("compare-main", {"rounds": 1}, tmp_path / "results")
    path = keep("compare-main", {"rounds": 3}, tmp_path / "results")
    assert [path.name for path in (tmp_path / "results").iterdir()] == ["compare-main.json"]
    kept = json.loads(path.read_text())
    assert kept["rounds"] == 3
    assert all(kept[name] for name in ("date", "commit", "machine"))


def test_only_the_latest_of_each_kind_is_kept() -> None:
    dated = [path.name for path in RESULTS.iterdir() if re.search(r"\d{6}", path.name)]
    assert not dated, "name a result by its kind alone (benchmarks/kept_results.py): git has the earlier ones"
