"""Avro records, one in each value: `Avro`."""

from onceflow.connectors.formats.avro.format import Avro

__all__ = ["Avro"]
