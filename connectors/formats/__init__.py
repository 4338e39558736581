"""Bytes to columns and back: `Json`, `Raw`, `Text`. `format.py` says what a format is."""

from onceflow.connectors.formats.format import (
    BadValue,
    Decoded,
    Decoder,
    EncodeError,
    Encoder,
    Format,
    Values,
)
from onceflow.connectors.formats.json import Json
from onceflow.connectors.formats.raw import Raw, Text

__all__ = [
    "BadValue",
    "Decoded",
    "Decoder",
    "EncodeError",
    "Encoder",
    "Format",
    "Json",
    "Raw",
    "Text",
    "Values",
]
