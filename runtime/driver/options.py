"""RunOptions: how a job is run. What it computes is in the program; what is here is for who runs it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from onceflow.runtime.checkpoint.options import BarrierOptions, CheckpointOptions
from onceflow.runtime.checkpoint.restart import ExponentialDelay, FixedDelay, NoRestart, RestartStrategy
from onceflow.runtime.checkpoint.savepoints.starting import OtherKeys
from onceflow.runtime.checkpoint.start_changes import StartChanges
from onceflow.runtime.durations import duration_ms
from onceflow.runtime.errors import OptionError
from onceflow.runtime.nearest import nearest
from onceflow.runtime.state.overflow import BACKENDS, MEMORY_BYTES_MIN, StateOptions
from onceflow.runtime.state.snapshot_options import SnapshotOptions
from onceflow.runtime.state.tables import has_rocksdb

DEFAULT_MASTER = "local[2]"


class Guarantee(Enum):
    """How often a record counts after a failure."""

    EXACTLY_ONCE = "exactly-once"
    """Aligned barriers, replay from the checkpoint."""
    AT_LEAST_ONCE = "at-least-once"
    """Barriers are not aligned: lower latency under skew, records may count twice in state."""
    AT_MOST_ONCE = "at-most-once"
    """No replay: after a failure reading goes on at the end of the input."""

    @staticmethod
    def parse(value: str) -> Guarantee:
        try:
            return Guarantee(value)
        except ValueError:
            offered = [g.value for g in Guarantee]
            raise OptionError(
                f"the guarantee {value!r} is not offered: {', '.join(offered)}{nearest(value, offered)}"
            ) from None


BARRIERS = ("aligned", "unaligned", "halt")


def barrier_options(
    barriers: str, alignment_timeout: str | int | None, in_flight: str | int, guarantee: Guarantee
) -> BarrierOptions:
    """Read the options on barriers as people write them. Raises OptionError."""
    if barriers not in BARRIERS:
        raise OptionError(
            f"barriers={barriers!r} is not offered: {', '.join(BARRIERS)}{nearest(barriers, BARRIERS)}"
        )
    overtake_after_ms = 0 if barriers == "unaligned" else None
    if alignment_timeout is not None:
        overtake_after_ms = duration_ms(alignment_timeout, "alignment_timeout")
    return BarrierOptions(
        is_aligned=guarantee is not Guarantee.AT_LEAST_ONCE,
        overtake_after_ms=overtake_after_ms,
        halts=barriers == "halt",
        in_flight_ms=duration_ms(in_flight, "in_flight"),
    )


_UNITS = {"B": 0, "KB": 10, "MB": 20, "GB": 30, "TB": 40}
_SIZE = re.compile(r"(\d+)\s*([KMGT]?B)", re.IGNORECASE)


def state_options(backend: str, memory: str | int | None, is_incremental: bool | None = None) -> StateOptions:
    """Read the options on state as people write them; sizes in units of 1024. Snapshots build on each other
    with rocksdb, if nothing else is said. Raises OptionError."""
    if backend not in BACKENDS:
        raise OptionError(
            f"state_backend={backend!r} is not offered: {', '.join(BACKENDS)}{nearest(backend, BACKENDS)}"
        )
    if backend == "rocksdb" and not has_rocksdb():
        raise OptionError(
            "state_backend='rocksdb' needs rocksdict, here and where the slots run: "
            "pip install 'onceflow[rocksdb]'"
        )
    memory_bytes = memory
    if isinstance(memory, str):
        size = _SIZE.fullmatch(memory.strip())
        if size is None:
            raise OptionError(f"state_memory={memory!r} is no size: write 512MB or 2GB, or a number of bytes")
        memory_bytes = int(size[1]) << _UNITS[size[2].upper()]
    assert memory_bytes is None or isinstance(memory_bytes, int)
    if memory_bytes is not None and memory_bytes < MEMORY_BYTES_MIN:
        raise OptionError(
            f"state_memory={memory!r} is too little: each slot needs at least {MEMORY_BYTES_MIN >> 20}MB"
        )
    snapshots = SnapshotOptions(backend == "rocksdb" if is_incremental is None else is_incremental)
    return StateOptions("rocksdb" if backend == "rocksdb" else "heap", memory_bytes, snapshots)


def restart_strategy(value: str) -> RestartStrategy:
    """`exponential` (default), `fixed:1 s` or `fixed:1 s:10` (delay, failures in a row), `none`."""
    kind, _, rest = value.partition(":")
    match kind:
        case "exponential" if not rest:
            return ExponentialDelay()
        case "fixed":
            delay, _, times = rest.partition(":")
            wait_ms = duration_ms(delay, "restart") if delay else FixedDelay().wait_ms
            if times and not times.isdecimal():
                raise OptionError(f"restart={value!r}: {times!r} is not a number of failures")
            return FixedDelay(wait_ms, int(times) if times else FixedDelay().failures_max)
        case "none" if not rest:
            return NoRestart()
        case _:
            raise OptionError(
                f"restart={value!r} is not a restart strategy: exponential, fixed:1 s, fixed:1 s:10, or none"
            )


def check_slots(slots: int, max_parallelism: int) -> None:
    """OptionError if no job with this max_parallelism can have so many slots."""
    if not 1 <= slots <= max_parallelism:
        raise OptionError(
            f"parallelism={slots}: the job's max_parallelism is {max_parallelism}: choose a number from 1 to "
            "that"
        )


def absolute_url(checkpoint_dir: str) -> str:
    """A local path as an absolute one: slots may run in another working directory."""
    if not checkpoint_dir.strip():
        raise OptionError("checkpoint_dir='' names no folder: write './checkpoints', or a URL")
    if ":" in checkpoint_dir.split("/")[0]:
        return checkpoint_dir
    return str(Path(checkpoint_dir).expanduser().absolute())


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Options of `onceflow run` and `job.run()`."""

    checkpoint_dir: str
    master: str = DEFAULT_MASTER
    parallelism: int | None = None
    """How many slots; None: as many as the master offers."""
    guarantee: Guarantee = Guarantee.EXACTLY_ONCE
    checkpoints: CheckpointOptions = field(default_factory=CheckpointOptions)
    barriers: BarrierOptions = field(default_factory=BarrierOptions)
    state: StateOptions = field(default_factory=StateOptions)
    slot_timeout_ms: int = 30_000
    """A slot that gave no sign of life for so long is lost."""
    spark_conf: Mapping[str, str] = field(default_factory=dict)
    control_port: int = 0
    """The driver's port to which the slots connect; 0: any free one."""
    start_from: int | None = None
    """A checkpoint id of the folder to start from instead of the latest."""
    accept_duplicates_after: int | None = None
    """The checkpoint after which rows that append-only sinks have committed may be written once more."""
    start_savepoint: str | None = None
    """The folder of a savepoint with which a new checkpoint folder begins."""
    start_changes: StartChanges = StartChanges()  # noqa: RUF009 - it is frozen
    """The uids, the offsets and the keys of that savepoint that are to be others."""
    other_keys: Mapping[str, OtherKeys] = field(default_factory=dict, repr=False)
    """What makes the new keys of its state, by the operator's uid."""
    allow_dropped_state: bool = False
    """Start although the checkpoint has state that the program has no place for: it is dropped."""
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """What fsspec makes the file system of `checkpoint_dir` with: an endpoint, credentials."""
    until: str | None = None
    """Where sources without an end of their own end (`api/until.py`)."""
    tls: bool = False
    """Encrypt what driver and slots say to each other; also done if the host's settings ask for it."""
    params: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Values for the job's parameters, as they were given: texts, or of the declared types."""
