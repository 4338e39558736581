"""CheckpointOptions: how often, how long, how many."""

from __future__ import annotations

from dataclasses import dataclass, field

from onceflow.runtime.checkpoint.restart import ExponentialDelay, RestartStrategy
from onceflow.runtime.errors import OptionError

IN_FLIGHT_MS = 1_000


@dataclass(frozen=True, slots=True)
class BarrierOptions:
    """How barriers get through the slots (docs/checkpoints.md)."""

    is_aligned: bool = True
    """No record behind a barrier gets into the state before it. False: at least once."""
    overtake_after_ms: int | None = None
    """How long after a checkpoint was asked for its barrier overtakes rows, which are kept with it. None: it
    never does."""
    halts: bool = False
    """Sources read nothing from their barrier until all slots have their snapshots."""
    in_flight_ms: int = IN_FLIGHT_MS
    """For how long what is in a channel may keep its receiver busy."""

    def __post_init__(self) -> None:
        if self.in_flight_ms < 1:
            raise OptionError(f"in_flight is {self.in_flight_ms} ms: it has to be at least 1 ms")
        if self.overtake_after_ms is not None and (self.halts or not self.is_aligned):
            raise OptionError(
                "barriers=unaligned and alignment_timeout are for exactly-once, and not for barriers=halt: "
                "leave one of the two out"
            )
        if self.halts and not self.is_aligned:
            raise OptionError("barriers=halt is for exactly-once, not for at-least-once: leave it out")


@dataclass(frozen=True, slots=True)
class CheckpointOptions:
    """Every wait of the coordinator has its limit here."""

    interval_ms: int = 10_000
    """The time from trigger to trigger, if the checkpoint is done by then."""
    min_pause_ms: int = 10
    """The shortest pause between the end of a checkpoint and the next trigger."""
    timeout_ms: int = 600_000
    """The longest time from the trigger to the last ack; then the checkpoint is aborted."""
    tolerable_failures: int = 3
    """How many aborted checkpoints in a row are passed over; one more fails the attempt."""
    open_timeout_ms: int = 300_000
    """The longest time to read the log and find the splits; then the job fails."""
    start_timeout_ms: int = 600_000
    """The longest time from StartSlots until all slots run and have committed what was restored."""
    persist_timeout_ms: int = 180_000
    """The longest wait to know whether a manifest is durable; then the attempt fails, and the next reads
    it."""
    persist_retry_ms: int = 500
    """The pause before a manifest or a commit of which nothing is known is tried again."""
    commit_timeout_ms: int = 600_000
    """The longest time for the sinks that commit in the driver, and then as long for the slots' commits;
    then the attempt fails, and the next one commits."""
    stop_timeout_ms: int = 7_000
    """The longest time from the wish to stop to the end, with or without a last checkpoint; letting go of the
    slots and of Spark takes up to 3 s more."""
    halts: bool = False
    """Sources stand still from their barrier on, and are told to go on when all slots have acked."""
    retained: int = 3
    """Completed checkpoints that are kept."""
    restart: RestartStrategy = field(default_factory=ExponentialDelay)

    @property
    def open_overdue(self) -> str:
        """Why the job fails when an attempt could not be opened in time, in words."""
        return f"no answer of checkpoint folder, sources and sinks for {self.open_timeout_ms} ms"

    @property
    def start_overdue(self) -> str:
        """Why an attempt fails whose slots did not start in time, in words."""
        return f"the slots did not start within {self.start_timeout_ms} ms"

    def __post_init__(self) -> None:
        if self.interval_ms < 1:
            raise OptionError(f"the checkpoint interval is {self.interval_ms} ms: it has to be at least 1 ms")
        if self.retained < 1:
            raise OptionError(f"{self.retained} retained checkpoints: at least 1 has to be kept")
