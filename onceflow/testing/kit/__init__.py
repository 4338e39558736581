"""Kits for the tests of connectors: a subclass is a test file, each sentence of the contract a test."""

from onceflow.testing.kit.formats import FormatKit
from onceflow.testing.kit.kit import BrokenContract
from onceflow.testing.kit.sinks import CommittingSinkKit, SinkKit
from onceflow.testing.kit.sources import QueueKit, SourceKit
from onceflow.testing.kit.stores import StoreKit
from onceflow.testing.kit.targets import TargetKit

__all__ = [
    "BrokenContract",
    "CommittingSinkKit",
    "FormatKit",
    "QueueKit",
    "SinkKit",
    "SourceKit",
    "StoreKit",
    "TargetKit",
]
