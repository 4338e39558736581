"""The library of the sketches, Apache DataSketches, which is an extra."""

from __future__ import annotations

from functools import cache
from typing import Any

from onceflow.runtime.errors import UsageError


@cache
def sketch_library() -> Any:
    """The module. Raises UsageError if it is not installed."""
    try:
        import datasketches
    except ImportError as error:
        raise UsageError(
            "approx_quantile() and approx_count_distinct() need datasketches, here and where the slots run: "
            "pip install 'onceflow[sketches]'"
        ) from error
    return datasketches
