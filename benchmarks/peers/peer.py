"""What the comparison knows of an engine: its name, how it is set up, and the command that runs its job."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

MAIN, PASS_THROUGH, MAP = "main", "passthrough", "map"
WORKLOADS = (MAIN, PASS_THROUGH, MAP)

FOLDER = Path(__file__).resolve().parent
REPOSITORY = FOLDER.parent.parent

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Assignment:
    """One run: read `input`, write `output`, never stop. Both topics exist and are not used before."""

    workload: str
    bootstrap_servers: str
    input: str
    output: str
    partitions: int
    """How many partitions the input has, and the output."""
    folder: Path
    """Empty, for checkpoints and state; deleted after the run."""
    security: Mapping[str, str] = field(default_factory=dict)
    """librdkafka's settings for a listener that encrypts or wants a password; empty for an open one."""


@dataclass(frozen=True, slots=True)
class Launch:
    """The command of a job. All its processes are descendants of the one that it starts."""

    command: Sequence[object]
    """Texts and paths."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Added to the environment."""


@dataclass(frozen=True, slots=True)
class Peer:
    """An engine in one configuration."""

    name: str
    """The name that --peers takes."""
    title: str
    guarantee: str
    """What its output is promised to be, in the configuration that is measured."""
    workloads: Sequence[str]
    prepare: Callable[[Say], Callable[[Assignment], Launch]]
    """Installs what is missing and gives what makes a run's command. Raises Unavailable."""
    records_max: Mapping[str, int] = field(default_factory=dict)
    """The most records for each workload: more would only take longer. The figure is a rate, so fewer records
    do no harm."""
    secured_workloads: Sequence[str] = ()
    """The workloads whose job can be told of an assignment's `security`."""
    time_limit_s: float = 300.0
    """From the command to the last row. What takes longer is shown as unfinished."""
