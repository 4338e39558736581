"""JobPhase: the states of a run of a job."""

from __future__ import annotations

from enum import Enum


class JobPhase(Enum):
    """The states of a run of the job."""

    OPENING = "opening"
    STARTING = "starting"
    RUNNING = "running"
    RESTARTING = "restarting"
    MARKING = "marking"
    OVER = "over"
