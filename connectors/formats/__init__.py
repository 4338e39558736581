"""Bytes to columns and back: `Avro`, `Json`, `Protobuf`, `Raw`, `Text`. `format.py` says what a format is."""

import importlib
from typing import TYPE_CHECKING

from onceflow.connectors.formats.format import (
    BadValue,
    ChangelogFormat,
    Decoded,
    Decoder,
    EncodeError,
    Encoder,
    Format,
    PlacingEncoder,
    TopicFormat,
    Values,
    for_topic,
)
from onceflow.connectors.formats.raw import Raw, Text

if TYPE_CHECKING:
    from onceflow.connectors.formats.avro.format import Avro
    from onceflow.connectors.formats.csv_row import CsvRow
    from onceflow.connectors.formats.debezium import Debezium
    from onceflow.connectors.formats.json.format import Json
    from onceflow.connectors.formats.protobuf.format import Protobuf
    from onceflow.connectors.formats.registry.schemas import SchemaReference
else:
    _LATER = {
        "Avro": "avro",
        "CsvRow": "csv_row",
        "Debezium": "debezium",
        "Json": "json",
        "Protobuf": "protobuf",
        "SchemaReference": "registry.schemas",
    }

    def __getattr__(name: str) -> object:
        """They are loaded when they are asked for: Spark plans and commits in processes that need none of
        them, and they take half a second of CPU with what they import (polars, tenacity)."""
        if name not in _LATER:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = getattr(importlib.import_module(f"{__name__}.{_LATER[name]}"), name)
        globals()[name] = found
        return found


__all__ = [
    "Avro",
    "BadValue",
    "ChangelogFormat",
    "CsvRow",
    "Debezium",
    "Decoded",
    "Decoder",
    "EncodeError",
    "Encoder",
    "Format",
    "Json",
    "PlacingEncoder",
    "Protobuf",
    "Raw",
    "SchemaReference",
    "Text",
    "TopicFormat",
    "Values",
    "for_topic",
]
