"""What a slot is told when it is launched."""

from __future__ import annotations

from onceflow.runtime.checkpoint.shared_folder import AttemptEntry
from onceflow.runtime.driver.options import RunOptions
from onceflow.runtime.functions.parameters import Parameters
from onceflow.runtime.graph.job_graph import JobGraph
from onceflow.runtime.slot.process import SlotLaunch
from onceflow.runtime.sockets.credentials import Credentials


def launch_of(
    options: RunOptions,
    attempt: int,
    graph: JobGraph,
    control_address: tuple[str, int],
    credentials: Credentials,
    attempt_entry: AttemptEntry | None,
    silence_ms: float,
    params: Parameters,
) -> SlotLaunch:
    """The launch of an attempt. `control_address`: where the driver listens; `attempt_entry`: the attempt's
    own in the log; `silence_ms`: how long a slot may be silent."""
    return SlotLaunch(
        attempt=attempt,
        graph=graph,
        control_address=control_address,
        credentials=credentials,
        checkpoint_url=options.checkpoint_dir,
        storage_options=options.storage_options,
        attempt_entry=attempt_entry,
        barriers=options.barriers,
        state=options.state,
        checkpoint_interval_ms=options.checkpoints.interval_ms,
        slot_timeout_ms=silence_ms,
        params=params,
    )
