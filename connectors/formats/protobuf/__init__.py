"""The format of Protobuf messages."""

from onceflow.connectors.formats.protobuf.format import Protobuf

__all__ = ["Protobuf"]
