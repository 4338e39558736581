"""The results that are kept: the latest of each kind, under its name in benchmarks/results/."""

from __future__ import annotations

import json
import platform
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

RESULTS = Path(__file__).resolve().parent / "results"


def stamped(result: Mapping[str, Any]) -> dict[str, Any]:
    """The result with the time, the commit and the machine of its measurement, which has just ended."""
    asked = ["git", "-C", str(RESULTS.parent), "describe", "--always", "--dirty", "--exclude=*"]
    commit = subprocess.run(asked, capture_output=True, text=True, check=False).stdout
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit.strip() or "unknown",
        "machine": f"{platform.machine()}, {psutil.cpu_count()} cores, "
        f"{psutil.virtual_memory().total >> 30} GiB, Python {platform.python_version()}",
        **result,
    }


def keep(kind: str, result: Mapping[str, Any], folder: Path = RESULTS) -> Path:
    """Write the stamped result as JSON, in place of the one before; a plot goes beside it, as .svg."""
    folder.mkdir(exist_ok=True, parents=True)
    path = folder / f"{kind}.json"
    path.write_text(json.dumps(stamped(result), indent=1) + "\n", encoding="utf-8")
    return path
