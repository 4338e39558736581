"""A connector whose packages are not installed says what to install."""

from __future__ import annotations

import pytest

from onceflow.connectors.extras import needs_extra
from onceflow.runtime.errors import UsageError


def test_the_extra_that_brings_a_missing_package_is_named() -> None:
    sentence = r"^MySqlSink needs pack.*: pip install 'onceflow\[mysql\]' \(it lacks 'no_such_package'\)$"
    with pytest.raises(UsageError, match=sentence), needs_extra("MySqlSink", "mysql"):
        import no_such_package  # type: ignore[import-not-found] # noqa: F401


def test_other_errors_are_passed_on() -> None:
    with pytest.raises(ZeroDivisionError), needs_extra("MySqlSink", "mysql"):
        1 / 0  # noqa: B018
