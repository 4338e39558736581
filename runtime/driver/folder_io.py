"""The driver's hands on its job's checkpoint folder, made of its options."""

from __future__ import annotations

from onceflow.runtime.checkpoint.doors import SinkDoor, SplitDoor
from onceflow.runtime.checkpoint.driver import CheckpointIO
from onceflow.runtime.checkpoint.savepoints.folder import savepoint_at
from onceflow.runtime.checkpoint.savepoints.starting import Origin
from onceflow.runtime.checkpoint.store import CheckpointStore
from onceflow.runtime.clock import Clock
from onceflow.runtime.driver.graph_program import going_back_of, program_of
from onceflow.runtime.driver.options import RunOptions
from onceflow.runtime.graph.job_graph import JobGraph


def checkpoint_io(
    graph: JobGraph,
    options: RunOptions,
    store: CheckpointStore,
    clock: Clock,
    doors: tuple[SplitDoor, SinkDoor],
    parallelism: int,
) -> CheckpointIO:
    """`doors`: to the sources and to the sinks. Raises UsageError if the savepoint to start from is none."""
    program = program_of(graph, options.allow_dropped_state)
    io = CheckpointIO(store, clock, *doors, program, parallelism, options.checkpoints.retained)
    io.from_checkpoint_id = options.start_from
    io.going_back = going_back_of(graph, options.accept_duplicates_after)
    if options.start_savepoint is not None:
        folder = savepoint_at(options.start_savepoint, options.storage_options)
        io.origin = Origin(folder, options.start_changes, options.other_keys)
    return io
