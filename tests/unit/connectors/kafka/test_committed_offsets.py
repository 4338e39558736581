"""Who reads what a consumer group has committed (beside a dead coordinator: integration/test_dead_broker)."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[4]


def test_nobody_asks_an_admin_client_for_committed_offsets() -> None:
    """It ends the process where it meets another broker than the group's coordinator."""
    modules = [path for room in ("connectors", "onceflow", "sinks") for path in (ROOT / room).rglob("*.py")]
    asking = [path for path in modules if ".list_consumer_group_offsets(" in path.read_text(encoding="utf-8")]
    assert len(modules) > 100
    assert asking == []
