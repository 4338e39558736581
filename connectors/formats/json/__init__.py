"""JSON objects, one in each value: `Json`."""

from onceflow.connectors.formats.json.format import Json

__all__ = ["Json"]
