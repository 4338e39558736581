"""Bytes to columns and back: `Avro`, `Json`, `Raw`, `Text`. `format.py` says what a format is."""

from onceflow.connectors.formats.avro import Avro
from onceflow.connectors.formats.format import (
    BadValue,
    Decoded,
    Decoder,
    EncodeError,
    Encoder,
    Format,
    TopicFormat,
    Values,
    for_topic,
)
from onceflow.connectors.formats.json import Json
from onceflow.connectors.formats.raw import Raw, Text

__all__ = [
    "Avro",
    "BadValue",
    "Decoded",
    "Decoder",
    "EncodeError",
    "Encoder",
    "Format",
    "Json",
    "Raw",
    "Text",
    "TopicFormat",
    "Values",
    "for_topic",
]
