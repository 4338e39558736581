"""Tests of a user's job: in one process, without a broker, in no time. See docs/testing-jobs.md."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from onceflow.testing.job_run import JobRun, run
from onceflow.testing.process_harness import ProcessHarness, harness
from onceflow.testing.script import At
from onceflow.testing.simulation import SimulationError, SimulationReport, simulate

if TYPE_CHECKING:
    from onceflow.testing.background_job import BackgroundJob
    from onceflow.testing.topic import Topic

__all__ = [
    "At",
    "BackgroundJob",
    "JobRun",
    "ProcessHarness",
    "SimulationError",
    "SimulationReport",
    "Topic",
    "harness",
    "run",
    "simulate",
]

_LATER = {"BackgroundJob": "background_job", "Topic": "topic"}


def __getattr__(name: str) -> Any:
    """What the fixtures give, loaded when it is asked for: other tests need no Kafka client."""
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_LATER[name]}"), name)
