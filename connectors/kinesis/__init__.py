"""Amazon Kinesis Data Streams: shards, in the order in which they came to be."""

from onceflow.connectors.kinesis.source import KinesisSource

__all__ = ["KinesisSource"]
