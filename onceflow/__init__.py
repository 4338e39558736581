"""Onceflow: exactly-once streams on Kafka. The names a user imports; all else may change.

Names are loaded when they are first used, so that `import onceflow` is fast and needs no Spark.
"""

from __future__ import annotations

import importlib
import logging
from typing import TYPE_CHECKING, Any

from onceflow.runtime.api import built_in
from onceflow.runtime.uncaught import tell_uncaught_errors
from onceflow.runtime.version import VERSION

if TYPE_CHECKING:
    from polars import col, lit

    from onceflow.runtime.api.error_policies import errors_to
    from onceflow.runtime.api.job import Job, run
    from onceflow.runtime.api.named_connectors import load_format, load_sink, load_source
    from onceflow.runtime.contracts import BatchContext, WatermarkGenerator, WatermarkStrategy
    from onceflow.runtime.errors import Retryable
    from onceflow.runtime.functions.context import FunctionContext
    from onceflow.runtime.functions.parameters import Secret, secret
    from onceflow.runtime.operators.aggregation.aggregates import (
        AggregateFunction,
        approx_count_distinct,
        approx_quantile,
        collect_list,
        count,
        count_distinct,
        first,
        last,
        max_,
        mean,
        min_,
        quantile,
        sum_,
    )
    from onceflow.runtime.operators.assigners.by_clock import processing_time
    from onceflow.runtime.operators.assigners.counting import count_window
    from onceflow.runtime.operators.assigners.cumulative import cumulative
    from onceflow.runtime.operators.assigners.global_window import global_window
    from onceflow.runtime.operators.assigners.own_windows import WindowAssigner
    from onceflow.runtime.operators.assigners.session import session
    from onceflow.runtime.operators.assigners.sliding import sliding
    from onceflow.runtime.operators.assigners.tumbling import tumbling
    from onceflow.runtime.operators.declared import SideOutput
    from onceflow.runtime.operators.function_state import InitializationContext, SnapshotContext
    from onceflow.runtime.operators.joins.window_groups import CoGroup, GroupWindow
    from onceflow.runtime.operators.processing.broadcast import BroadcastCtx, KeyedBroadcastProcess
    from onceflow.runtime.operators.processing.broadcast_state import BroadcastState
    from onceflow.runtime.operators.processing.co_functions import CoFlatMap, CoMap
    from onceflow.runtime.operators.processing.combined_states import AggregatingState, ReducingState
    from onceflow.runtime.operators.processing.keyed_process import Ctx, KeyedCoProcess, KeyedProcess
    from onceflow.runtime.operators.processing.keyless_broadcast import BroadcastProcess
    from onceflow.runtime.operators.processing.keyless_co_process import CoProcess
    from onceflow.runtime.operators.processing.keyless_process import Process
    from onceflow.runtime.operators.processing.window_process import WindowCtx, WindowProcess, WindowState
    from onceflow.runtime.operators.triggers.bounds import WindowBounds
    from onceflow.runtime.operators.triggers.built_in import (
        at_processing_time,
        at_watermark,
        delta,
        every,
        every_processing_time,
        every_rows,
        purging,
    )
    from onceflow.runtime.operators.triggers.evictors import Evictor, evict_count, evict_delta, evict_time
    from onceflow.runtime.operators.triggers.own import Trigger, TriggerCtx, TriggerResult
    from onceflow.runtime.state.handles import ListState, MapState, ValueState
    from onceflow.runtime.state.operator_lists import OperatorListState, UnionListState
    from onceflow.runtime.state.timers import Timer
    from onceflow.runtime.state_tables.changed_rows import read_changes
    from onceflow.runtime.state_tables.client import StateClient
    from onceflow.runtime.state_tables.reader import read_state
    from onceflow.runtime.state_tables.rekeyed import rekey_state
    from onceflow.runtime.state_tables.writer import write_state
    from onceflow.runtime.types.value_types import FormerName, Scale
    from onceflow.structured_streaming.register import register
    from onceflow.structured_streaming.told_mistakes import why_failed

__version__ = VERSION

# Silent unless the program configures logging: else librdkafka's lines would go through the live line.
logging.getLogger("onceflow").addHandler(logging.NullHandler())

tell_uncaught_errors()

# What the methods of Job and Stream make sources and sinks with: the runtime itself knows no connector, and
# its API not what is built on it.
built_in.offer(
    {
        "elements": "onceflow.connectors.collections.given_records:elements_source",
        "files": "onceflow.connectors.files.source:files_source",
        "foreach": "onceflow.sinks.foreach:ForeachSink",
        "generator": "onceflow.connectors.generator.source:generator_source",
        "to_files": "onceflow.sinks.files:file_sink",
        "print": "onceflow.sinks.print:PrintSink",
        "collect": "onceflow.sinks.collect:CollectSink",
        "records": "onceflow.connectors.collections.given_records:records_source",
        "sql": "onceflow.runtime.sql.entry:sql",
    }
)

_MODULES = {
    "polars": ("col", "lit"),
    "onceflow.runtime.contracts": ("BatchContext", "WatermarkGenerator", "WatermarkStrategy"),
    "onceflow.runtime.errors": ("Retryable",),
    "onceflow.runtime.api.error_policies": ("errors_to",),
    "onceflow.runtime.functions.context": ("FunctionContext",),
    "onceflow.runtime.functions.parameters": ("Secret", "secret"),
    "onceflow.runtime.api.job": ("Job", "run"),
    "onceflow.runtime.api.named_connectors": ("load_format", "load_sink", "load_source"),
    "onceflow.runtime.operators.aggregation.aggregates": (
        "AggregateFunction",
        "approx_count_distinct",
        "approx_quantile",
        "collect_list",
        "count",
        "count_distinct",
        "first",
        "last",
        "max_",
        "mean",
        "min_",
        "quantile",
        "sum_",
    ),
    "onceflow.runtime.operators.function_state": ("InitializationContext", "SnapshotContext"),
    "onceflow.runtime.operators.joins.window_groups": ("CoGroup", "GroupWindow"),
    "onceflow.runtime.operators.processing.broadcast": ("BroadcastCtx", "KeyedBroadcastProcess"),
    "onceflow.runtime.operators.processing.broadcast_state": ("BroadcastState",),
    "onceflow.runtime.operators.processing.keyless_broadcast": ("BroadcastProcess",),
    "onceflow.runtime.operators.processing.co_functions": ("CoFlatMap", "CoMap"),
    "onceflow.runtime.operators.processing.combined_states": ("AggregatingState", "ReducingState"),
    "onceflow.runtime.operators.processing.keyed_process": (
        "Ctx",
        "KeyedCoProcess",
        "KeyedProcess",
    ),
    "onceflow.runtime.operators.processing.keyless_co_process": ("CoProcess",),
    "onceflow.runtime.operators.processing.keyless_process": ("Process",),
    "onceflow.runtime.operators.processing.window_process": ("WindowCtx", "WindowProcess", "WindowState"),
    "onceflow.runtime.operators.declared": ("SideOutput",),
    "onceflow.runtime.operators.assigners.by_clock": ("processing_time",),
    "onceflow.runtime.operators.assigners.counting": ("count_window",),
    "onceflow.runtime.operators.assigners.cumulative": ("cumulative",),
    "onceflow.runtime.operators.assigners.global_window": ("global_window",),
    "onceflow.runtime.operators.assigners.own_windows": ("WindowAssigner",),
    "onceflow.runtime.operators.assigners.session": ("session",),
    "onceflow.runtime.operators.assigners.sliding": ("sliding",),
    "onceflow.runtime.operators.assigners.tumbling": ("tumbling",),
    "onceflow.runtime.operators.triggers.bounds": ("WindowBounds",),
    "onceflow.runtime.operators.triggers.built_in": (
        "at_processing_time",
        "at_watermark",
        "delta",
        "every",
        "every_processing_time",
        "every_rows",
        "purging",
    ),
    "onceflow.runtime.operators.triggers.evictors": (
        "Evictor",
        "evict_count",
        "evict_delta",
        "evict_time",
    ),
    "onceflow.runtime.operators.triggers.own": ("Trigger", "TriggerCtx", "TriggerResult"),
    "onceflow.runtime.state.handles": ("ListState", "MapState", "ValueState"),
    "onceflow.runtime.state.operator_lists": ("OperatorListState", "UnionListState"),
    "onceflow.runtime.state.timers": ("Timer",),
    "onceflow.runtime.state_tables.client": ("StateClient",),
    "onceflow.runtime.state_tables.changed_rows": ("read_changes",),
    "onceflow.runtime.state_tables.reader": ("read_state",),
    "onceflow.runtime.state_tables.rekeyed": ("rekey_state",),
    "onceflow.runtime.state_tables.writer": ("write_state",),
    "onceflow.runtime.types.value_types": ("FormerName", "Scale"),
    "onceflow.structured_streaming.register": ("register",),
    "onceflow.structured_streaming.told_mistakes": ("why_failed",),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "AggregateFunction",
    "AggregatingState",
    "BatchContext",
    "BroadcastCtx",
    "BroadcastProcess",
    "BroadcastState",
    "CoFlatMap",
    "CoGroup",
    "CoMap",
    "CoProcess",
    "Ctx",
    "Evictor",
    "FormerName",
    "FunctionContext",
    "GroupWindow",
    "InitializationContext",
    "Job",
    "KeyedBroadcastProcess",
    "KeyedCoProcess",
    "KeyedProcess",
    "ListState",
    "MapState",
    "OperatorListState",
    "Process",
    "ReducingState",
    "Retryable",
    "Scale",
    "Secret",
    "SideOutput",
    "SnapshotContext",
    "StateClient",
    "Timer",
    "Trigger",
    "TriggerCtx",
    "TriggerResult",
    "UnionListState",
    "ValueState",
    "WatermarkGenerator",
    "WatermarkStrategy",
    "WindowAssigner",
    "WindowBounds",
    "WindowCtx",
    "WindowProcess",
    "WindowState",
    "approx_count_distinct",
    "approx_quantile",
    "at_processing_time",
    "at_watermark",
    "col",
    "collect_list",
    "count",
    "count_distinct",
    "count_window",
    "cumulative",
    "delta",
    "errors_to",
    "every",
    "every_processing_time",
    "every_rows",
    "evict_count",
    "evict_delta",
    "evict_time",
    "first",
    "global_window",
    "last",
    "lit",
    "load_format",
    "load_sink",
    "load_source",
    "max_",
    "mean",
    "min_",
    "processing_time",
    "purging",
    "quantile",
    "read_changes",
    "read_state",
    "register",
    "rekey_state",
    "run",
    "secret",
    "session",
    "sliding",
    "sum_",
    "tumbling",
    "why_failed",
    "write_state",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'onceflow' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
