"""Values of state tables as JSON: what commands, the query server and Spark's table of all rows print."""

from __future__ import annotations

import base64
import datetime as dt
import json
from typing import Any


def json_text(value: Any) -> str:
    """A value that a table holds, as JSON."""
    return json.dumps(value, default=as_json, ensure_ascii=False)


def as_json(value: Any) -> Any:
    """What JSON has no form for: bytes in base64, times as ISO 8601, all else as its text."""
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, dt.date | dt.datetime | dt.time):
        return value.isoformat()
    return str(value)
