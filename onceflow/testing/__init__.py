"""Tests of a user's job: in one process, without a broker, in no time. See docs/testing-jobs.md."""

from onceflow.testing.job_run import JobRun, run
from onceflow.testing.process_harness import ProcessHarness, harness
from onceflow.testing.script import At
from onceflow.testing.simulation import SimulationError, SimulationReport, simulate

__all__ = [
    "At",
    "JobRun",
    "ProcessHarness",
    "SimulationError",
    "SimulationReport",
    "harness",
    "run",
    "simulate",
]
