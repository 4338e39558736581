"""What a slot is told when it is launched."""

from __future__ import annotations

from onceflow.runtime.driver.options import RunOptions
from onceflow.runtime.functions.parameters import Parameters
from onceflow.runtime.graph.job_graph import JobGraph
from onceflow.runtime.slot.process import SlotLaunch
from onceflow.runtime.sockets.credentials import Credentials


def launch_of(
    options: RunOptions,
    number: int,
    attempt: int,
    graph: JobGraph,
    control_address: tuple[str, int],
    credentials: Credentials,
    silence_ms: float,
    params: Parameters,
) -> SlotLaunch:
    """A launch for an attempt. `number`: of this driver's launches; `control_address`: where the driver
    listens; `silence_ms`: how long a slot may be silent."""
    return SlotLaunch(
        number=number,
        attempt=attempt,
        graph=graph,
        control_address=control_address,
        credentials=credentials,
        checkpoint_url=options.checkpoint_dir,
        storage_options=options.storage_options,
        barriers=options.barriers,
        state=options.state,
        checkpoint_interval_ms=options.checkpoints.interval_ms,
        slot_timeout_ms=silence_ms,
        params=params,
    )
