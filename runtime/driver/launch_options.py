"""What the options of a run say to its slots."""

from __future__ import annotations

from dataclasses import replace

from onceflow.runtime.driver.options import RunOptions
from onceflow.runtime.functions.parameters import Parameters
from onceflow.runtime.slot.process import SlotLaunch


def completed(launch: SlotLaunch, options: RunOptions, silence_ms: float, params: Parameters) -> SlotLaunch:
    """The launch of an attempt with all that the options and these parameters say. `silence_ms`: how long a
    slot may be silent."""
    return replace(
        launch,
        checkpoint_url=options.checkpoint_dir,
        storage_options=options.storage_options,
        barriers=options.barriers,
        state=options.state,
        checkpoint_interval_ms=options.checkpoints.interval_ms,
        slot_timeout_ms=silence_ms,
        params=params,
    )
