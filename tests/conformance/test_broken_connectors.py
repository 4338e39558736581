"""Each check of the kits notices what it is for: connectors that are wrong in one way each."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest

from onceflow.runtime.errors import UsageError
from onceflow.testing.kit import (
    BrokenContract,
    CommittingSinkKit,
    FormatKit,
    QueueKit,
    SinkKit,
    SourceKit,
    StoreKit,
    TargetKit,
)
from onceflow.testing.kit.kit import Kit
from tests.conformance import broken_formats, broken_sinks, broken_sources, broken_tables

KITS = (SinkKit, CommittingSinkKit, QueueKit, TargetKit, FormatKit, StoreKit)


def pairs(killers: Mapping[Any, str]) -> list[Any]:
    return [
        pytest.param(broken, check, id=f"{broken.__name__}-{check}")
        for broken, checks in killers.items()
        for check in checks.split()
    ]


def noticed(kit: Any, check: str) -> None:
    """The check fails, and says all that there is to say."""
    with pytest.raises(BrokenContract, match=f"^{check.replace('_', ' ')}: ") as found:
        kit.check(check)
    kit.teardown_class()
    assert "The contract says (" in str(found.value)
    assert f"::test_{check}" in str(found.value)


def kit_of(broken: Any, base: Any) -> Any:
    """The kit of a broken part; a kit that other processes have to find is given as one."""
    return broken if issubclass(broken, Kit) else type(base.__name__, (base,), {"part": broken})


@pytest.mark.parametrize(("broken", "check"), pairs(broken_sinks.KILLERS))
def test_a_wrong_sink_is_noticed(broken: Any, check: str) -> None:
    noticed(kit_of(broken, broken_sinks.BrokenKit), check)


@pytest.mark.parametrize(("broken", "check"), pairs(broken_tables.TABLE_KILLERS))
def test_a_wrong_table_is_noticed(broken: Any, check: str) -> None:
    noticed(kit_of(broken, broken_tables.BrokenTableKit), check)


@pytest.mark.parametrize(("broken", "check"), pairs(broken_tables.TARGET_KILLERS))
def test_a_wrong_target_is_noticed(broken: Any, check: str) -> None:
    noticed(kit_of(broken, broken_tables.BrokenTargetKit), check)


@pytest.mark.parametrize(("broken", "check"), pairs(broken_sources.SOURCE_KILLERS))
def test_a_wrong_source_is_noticed(broken: Any, check: str) -> None:
    noticed(kit_of(broken, broken_sources.BrokenSourceKit), check)


@pytest.mark.parametrize(("broken", "check"), pairs(broken_sources.QUEUE_KILLERS))
def test_a_wrong_queue_is_noticed(broken: Any, check: str) -> None:
    noticed(kit_of(broken, broken_sources.BrokenQueueKit), check)


@pytest.mark.parametrize(("broken", "check"), pairs(broken_formats.FORMAT_KILLERS))
def test_a_wrong_format_is_noticed(broken: Any, check: str) -> None:
    noticed(kit_of(broken, broken_formats.BrokenFormatKit), check)


@pytest.mark.parametrize(("broken", "check"), pairs(broken_formats.STORE_KILLERS))
def test_a_wrong_store_is_noticed(broken: Any, check: str) -> None:
    noticed(kit_of(broken, broken_formats.BrokenStoreKit), check)


def test_every_check_is_shown_a_wrong_connector() -> None:
    shown = {
        SinkKit: broken_sinks.KILLERS,
        CommittingSinkKit: {**broken_sinks.KILLERS, **broken_tables.TABLE_KILLERS},
        TargetKit: broken_tables.TARGET_KILLERS,
        SourceKit: broken_sources.SOURCE_KILLERS,
        QueueKit: {**broken_sources.SOURCE_KILLERS, **broken_sources.QUEUE_KILLERS},
        FormatKit: broken_formats.FORMAT_KILLERS,
        StoreKit: broken_formats.STORE_KILLERS,
    }
    for kit, killers in shown.items():
        checks = {check for checks in killers.values() for check in checks.split()}
        assert set(kit.checks()) - checks == set(), kit


def test_a_failure_tells_every_call_and_what_is_wrong() -> None:
    kit = kit_of(broken_sinks.HasNoLedger, broken_sinks.BrokenKit)
    with pytest.raises(BrokenContract) as found:
        kit.check("killed_after_commit_of_a_writer")
    said = str(found.value)
    assert "expected to see [11, 12, 21, 22], and doubled are [11, 12]" in said
    assert re.search(r"^  2\. attempt 1, subtask 0 of 1 opens a writer", said, re.MULTILINE)
    assert "the process is killed after this call" in said


def test_a_check_that_is_not_there_is_named() -> None:
    with pytest.raises(UsageError, match=r"has no check 'commit_twice'"):
        SinkKit.check("commit_twice")


def test_the_kit_for_the_other_kind_of_sink_is_named() -> None:
    kit = type("Wrong", (broken_tables.BrokenTableKit, SinkKit), {})
    assert issubclass(kit, CommittingSinkKit)
    table = type(
        "Wrong", (SinkKit,), {"sink": broken_tables.BrokenTableKit.sink, "part": broken_tables.RightWriter}
    )
    with pytest.raises(UsageError, match="Wrong has to be a CommittingSinkKit, for a Table"):
        table.check("commit_may_be_told_twice")


def test_the_right_one_passes_all() -> None:
    assert broken_sinks.BrokenKit.check_all() == ["a_new_process_commits_what_was_promised"]


def test_what_is_quoted_is_in_the_contract() -> None:
    for kit in KITS:
        for name in kit.checks():
            said = kit.quotation(name)
            assert said is not None, name
            assert said.is_there, f"{name}: {said.place} does not say {said.sentence!r}"
