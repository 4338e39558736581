"""Each check of the kits notices what it is for: connectors that are wrong in one way each."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest

from onceflow.testing.kit import BrokenContract, CommittingSinkKit, QueueKit, SinkKit, TargetKit
from tests.conformance import broken_sinks

KITS = (SinkKit, CommittingSinkKit, QueueKit, TargetKit)


def pairs(killers: Mapping[Any, str]) -> list[Any]:
    return [
        pytest.param(broken, check, id=f"{broken.__name__}-{check}")
        for broken, checks in killers.items()
        for check in checks.split()
    ]


def with_part(kit: Any, **parts: Any) -> Any:
    """The kit of a broken part."""
    return type(kit.__name__, (kit,), parts)


@pytest.mark.parametrize(("broken", "check"), pairs(broken_sinks.KILLERS))
def test_a_wrong_sink_is_noticed(broken: Any, check: str) -> None:
    kit = with_part(broken_sinks.BrokenKit, writer=broken)
    if broken is broken_sinks.PromisesFromMemory:
        kit = broken_sinks.PromisesFromMemoryKit
    with pytest.raises(BrokenContract, match=f"^{check.replace('_', ' ')}: ") as found:
        kit.check(check)
    kit.teardown_class()
    assert "The contract says (" in str(found.value)
    assert f"::test_{check}\n" in str(found.value)
    assert re.search(r"^  1\. ", str(found.value), re.MULTILINE), "the calls are told"


def test_every_check_of_sinks_is_shown_a_wrong_one() -> None:
    shown = {check for checks in broken_sinks.KILLERS.values() for check in checks.split()}
    assert shown == set(SinkKit.checks())


def test_the_right_one_passes_all() -> None:
    assert broken_sinks.BrokenKit.check_all() == ["a_new_process_commits_what_was_promised"]


def test_what_is_quoted_is_in_the_contract() -> None:
    for kit in KITS:
        for name in kit.checks():
            said = kit.quotation(name)
            assert said is not None, name
            assert said.is_there, f"{name}: {said.place} does not say {said.sentence!r}"
