"""Kits for the tests of connectors: a subclass is a test file, each sentence of the contract a test."""

from onceflow.testing.kit.kit import BrokenContract
from onceflow.testing.kit.sinks import CommittingSinkKit, SinkKit

__all__ = ["BrokenContract", "CommittingSinkKit", "SinkKit"]
