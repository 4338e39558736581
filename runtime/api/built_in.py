"""The connectors behind `job.from_elements`, `stream.print` and the like, by name.

They are connectors like any other, so the runtime can't import them. Who puts the package together says where
each of them is (onceflow/__init__.py), and it is imported when it is first used.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

_PLACES: dict[str, str] = {}


def offer(places: Mapping[str, str]) -> None:
    """Say where connectors are: `package.module:function` by the name under which `built_in` is asked."""
    _PLACES.update(places)


def built_in(name: str) -> Any:
    """The function that makes the source or the sink of this name."""
    module, _, function = _PLACES[name].partition(":")
    return getattr(importlib.import_module(module), function)


def names() -> list[str]:
    """All names that were offered."""
    return sorted(_PLACES)
