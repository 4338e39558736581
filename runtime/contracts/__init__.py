"""What connectors must provide. Start with `source.py` and `sink.py`.

This folder is all that the author of a connector reads. The engine calls these objects and nothing else;
`runtime/testing/conformance/` checks an implementation against every sentence here.
"""

from __future__ import annotations

from onceflow.runtime.contracts.abilities import (
    AcknowledgingReader,
    BoundingEnumerator,
    ChangelogSource,
    EndableSource,
    ForgettingReader,
    Noted,
    PartialChangelogSource,
    PausableReader,
    PausableSource,
    PruningEnumerator,
    PruningSource,
    SkippingEnumerator,
    StartingEnumerator,
    WaitingEnumerator,
    WarningEnumerator,
)
from onceflow.runtime.contracts.batch_context import BatchContext
from onceflow.runtime.contracts.batches import BatchedSource, BatchLimit, BatchPlanner
from onceflow.runtime.contracts.committer import (
    CommitterContext,
    CommittingSink,
    SettlingSink,
    SinkCommitter,
)
from onceflow.runtime.contracts.dead_letters import (
    DEAD_LETTER_SCHEMA,
    DeadLetterSource,
)
from onceflow.runtime.contracts.json_values import Json
from onceflow.runtime.contracts.sink import (
    ChangelogSink,
    Committable,
    PartitionedSink,
    PreCommit,
    Sink,
    SinkContext,
    SinkWriter,
    ThrottlingWriter,
    WatermarkedWriter,
)
from onceflow.runtime.contracts.source import (
    Fetch,
    ProjectableSource,
    ReaderContext,
    Source,
    SourceReader,
    SplitEnumerator,
    SplitProgress,
    SplitState,
)
from onceflow.runtime.contracts.staging import CopiedFiles, NoFiles, PromisedFiles, StagedFiles
from onceflow.runtime.contracts.watermarks import WatermarkGenerator, WatermarkStrategy

__all__ = [
    "DEAD_LETTER_SCHEMA",
    "AcknowledgingReader",
    "BatchContext",
    "BatchLimit",
    "BatchPlanner",
    "BatchedSource",
    "BoundingEnumerator",
    "ChangelogSink",
    "ChangelogSource",
    "Committable",
    "CommitterContext",
    "CommittingSink",
    "CopiedFiles",
    "DeadLetterSource",
    "EndableSource",
    "Fetch",
    "ForgettingReader",
    "Json",
    "NoFiles",
    "Noted",
    "PartialChangelogSource",
    "PartitionedSink",
    "PausableReader",
    "PausableSource",
    "PreCommit",
    "ProjectableSource",
    "PromisedFiles",
    "PruningEnumerator",
    "PruningSource",
    "ReaderContext",
    "SettlingSink",
    "Sink",
    "SinkCommitter",
    "SinkContext",
    "SinkWriter",
    "SkippingEnumerator",
    "Source",
    "SourceReader",
    "SplitEnumerator",
    "SplitProgress",
    "SplitState",
    "StagedFiles",
    "StartingEnumerator",
    "ThrottlingWriter",
    "WaitingEnumerator",
    "WarningEnumerator",
    "WatermarkGenerator",
    "WatermarkStrategy",
    "WatermarkedWriter",
]
