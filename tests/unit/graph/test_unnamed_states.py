"""State under a uid that the program does not give: `onceflow plan` and a run say that it can be lost."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from onceflow import Job, WatermarkStrategy, count, tumbling
from onceflow.cli.plan import _tree
from onceflow.runtime.api.job import run_job
from onceflow.runtime.api.run_options import run_options
from onceflow.runtime.graph.plan import UNNAMED, describe
from onceflow.runtime.graph.plan_display import as_markdown
from onceflow.runtime.report import JobProgress


class Told:
    """A Reporter that keeps the warnings."""

    def __init__(self) -> None:
        self.warnings: list[str] = []

    def event(self, name: str, fields: Mapping[str, Any]) -> None:
        if name == "warning":
            self.warnings.append(fields["reason"])

    def progress(self, progress: JobProgress) -> None: ...

    def close(self) -> None: ...


def program(uid: str | None) -> Job:
    job = Job("views")
    rows = job.from_elements({"user": "ann", "ts": 1}, watermarks=WatermarkStrategy.monotonous("ts"))
    rows.key_by("user").window(tumbling("1 min")).aggregate(n=count(), uid=uid).collect()
    return job


def test_only_operators_that_keep_state_without_a_uid_are_named() -> None:
    assert program("per-user").build().unnamed_states() == []
    assert program(None).build().unnamed_states() == ["from_elements.window"]


def test_the_plan_says_so() -> None:
    described = describe(program(None).build())
    warned = [o["uid"] for chain in described["chains"] for o in chain["operators"] if "warning" in o]
    assert warned == ["from_elements.window"]
    console = Console(width=200)
    with console.capture() as shown:
        console.print(_tree(described))
    assert shown.get().count(f"warning: {UNNAMED}") == 1
    assert as_markdown(described).count(UNNAMED) == 1
    assert "warning" not in str(describe(program("per-user").build()))


def test_a_run_says_it_once(tmp_path: Path) -> None:
    for uid, said in ((None, [f"'from_elements.window' {UNNAMED}"]), ("per-user", [])):
        told = Told()
        options = run_options(str(tmp_path / str(uid)), master="threads[1]")
        run_job(program(uid).build(), options, told)
        assert told.warnings == said
