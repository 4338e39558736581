"""Visits of past days from files, then today's as they come."""

import json
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp

from onceflow import Job
from onceflow.connectors.files import files_source
from onceflow.connectors.hybrid import HybridSource


@dataclass(frozen=True)
class Visit:
    user: str
    page: str


folder = Path(mkdtemp())
for day in ("2026-01-01", "2026-01-02"):
    line = json.dumps({"user": "ann", "page": f"/{day}"})
    (folder / f"{day}.jsonl").write_text(line + "\n")

visits = HybridSource(
    [
        files_source(f"{folder}/2026-*.jsonl", Visit),
        files_source(f"{folder}/today/*.jsonl", Visit, watch="1 s"),
    ]
)

job = Job("visits")
job.source(visits, uid="visits").key_by("user").reduce(
    lambda so_far, now: Visit(so_far.user, now.page), uid="latest"
).print()
