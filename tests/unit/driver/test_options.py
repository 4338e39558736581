"""Options as people write them, and the sentence that a wrong one gets."""

from __future__ import annotations

from typing import Any

import pytest

from onceflow.runtime.api.run_options import run_options
from onceflow.runtime.checkpoint.restart import ExponentialDelay, FixedDelay, NoRestart, RestartStrategy
from onceflow.runtime.driver.options import Guarantee, restart_strategy
from onceflow.runtime.errors import OptionError


@pytest.mark.parametrize("guarantee", Guarantee)
def test_each_guarantee_is_parsed_by_its_name(guarantee: Guarantee) -> None:
    assert Guarantee.parse(guarantee.value) is guarantee


def test_a_misspelt_guarantee_gets_the_nearest() -> None:
    with pytest.raises(OptionError, match=r"'exactly_once' is not offered: exactly-once, .*exactly-once"):
        Guarantee.parse("exactly_once")


@pytest.mark.parametrize(
    ("text", "strategy"),
    [
        ("exponential", ExponentialDelay()),
        ("fixed", FixedDelay()),
        ("fixed:1 s", FixedDelay(1_000)),
        ("fixed:250 ms:7", FixedDelay(250, 7)),
        ("none", NoRestart()),
    ],
)
def test_a_restart_strategy_is_parsed(text: str, strategy: RestartStrategy) -> None:
    assert restart_strategy(text) == strategy


@pytest.mark.parametrize(
    "text", ["", "never", "none:1", "exponential:3", "fixed:soon", "fixed:1 s:x", "fixed:1 s:-1"]
)
def test_a_wrong_restart_strategy_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match="restart"):
        restart_strategy(text)


def test_options_are_read_with_their_units() -> None:
    options = run_options(
        "dir", checkpoint_interval="100 ms", checkpoint_timeout="1 min", retained=5, parallelism=3
    )
    assert options.checkpoints.interval_ms == 100
    assert options.checkpoints.timeout_ms == 60_000
    assert options.checkpoints.retained == 5
    assert options.parallelism == 3
    assert options.guarantee is Guarantee.EXACTLY_ONCE


@pytest.mark.parametrize(
    ("given", "is_incremental"),
    [
        ({}, False),
        ({"incremental": True}, True),
        ({"state_backend": "rocksdb"}, True),
        ({"state_backend": "rocksdb", "incremental": False}, False),
    ],
)
def test_checkpoints_build_on_each_other_with_rocksdb_and_on_request(
    given: dict[str, Any], is_incremental: bool
) -> None:
    assert run_options("dir", **given).state.snapshots.are_incremental == is_incremental


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"parallelism": 0}, "parallelism=0: at least 1"),
        ({"checkpoint_interval": "soon"}, "checkpoint_interval"),
        ({"checkpoint_interval": 0}, "checkpoint interval is 0 ms"),
        ({"checkpoint_timeout": "1 fortnight"}, "checkpoint_timeout"),
        ({"retained": 0}, "0 retained checkpoints"),
        ({"guarantee": "twice"}, "guarantee 'twice'"),
        (
            {"barriers": "halted"},
            "barriers='halted' is not offered: aligned, unaligned, halt .did you mean 'halt'",
        ),
        (
            {"barriers": "halt", "guarantee": "at-least-once"},
            "barriers=halt is for exactly-once",
        ),
        ({"in_flight": "0 s"}, "in_flight is 0 ms"),
    ],
)
def test_a_wrong_option_is_named(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        run_options("dir", **wrong)
