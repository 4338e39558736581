"""The connectors that the documents write pass the kits, as they are in the documents, and are short."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.own_connectors import (
    EXAMPLES,
    own_format,
    own_sink,
    own_source,
    own_target,
    own_upserts,
)

TestFormat = own_format.TestPairs
TestSink = own_sink.TestDatabase
TestSource = own_source.TestLines
TestTransactionalSink = own_target.TestDatabase
TestUpserts = own_upserts.TestKeys
TestTarget = own_target.TestDatabaseTarget


@pytest.mark.parametrize("name", ["own_sink", "own_source", "own_target"])
def test_a_connector_is_sixty_lines(name: str) -> None:
    """All counts but its tests, what they import, and blank lines."""
    connector, tests = Path(EXAMPLES, f"{name}.py").read_text().split("# --- ", 1)
    lines = [line for line in connector.splitlines() if line.strip()]
    assert len([line for line in lines if "onceflow.testing.kit" not in line]) <= 60
    assert "Kit):" in tests
