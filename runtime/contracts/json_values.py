"""Json: what connectors may put into a checkpoint's manifest."""

from __future__ import annotations

from typing import Any

Json = Any
"""A value that json.dumps takes: None, bool, int, float, str, list, dict with str keys."""
