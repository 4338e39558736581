"""Another number of slots: those of the next attempt come up first, then comes the last checkpoint."""

from __future__ import annotations

import pytest

from onceflow.runtime.checkpoint import events as ev
from onceflow.runtime.checkpoint.effects import Effect
from onceflow.runtime.checkpoint.scale import WARM_MS_MAX, Scale
from onceflow.runtime.testing.coordination import Coordination, manifest
from onceflow.runtime.testing.mutation import Mutant, mutated

AT_MS = 20
"""When the request comes; the interval is 100 ms."""


def asked(slots: int = 4) -> Coordination:
    job = Coordination().running().at(AT_MS)
    return job.on(ev.RescaleRequested(slots))


def test_the_last_checkpoint_comes_when_the_next_slots_are_warm() -> None:
    job = asked()
    assert job.only(ev.WarmSlots) == ev.WarmSlots(1, 4)
    assert job.found(ev.Trigger) == []
    assert job.at(AT_MS + 30).found(ev.Trigger) == []
    job.on(ev.SlotsWarmed(1, 4))
    assert job.announced == ["slots_warmed"]
    assert job.only(ev.Trigger) == ev.Trigger(1, 1, is_last=True)


def test_without_room_it_comes_at_once() -> None:
    job = asked().on(ev.SlotsWarmed(1, 0))
    assert job.announced == []
    assert job.only(ev.Trigger).is_last


def test_it_comes_also_if_nobody_answers_and_others_go_on_meanwhile() -> None:
    job = asked()
    assert not job.at(100).only(ev.Trigger).is_last, "the job's own interval"
    job.completed()
    assert job.coordinator.wake_at_ms == 200
    assert job.at(AT_MS + WARM_MS_MAX).only(ev.Trigger).is_last


def test_a_request_that_is_taken_back_lets_them_go() -> None:
    job = asked()
    assert job.only(ev.WarmSlots).slots == 4
    assert job.on(ev.RescaleRequested(4)).found(ev.WarmSlots) == [], "it is known"
    assert job.on(ev.RescaleRequested(2)).only(ev.WarmSlots) == ev.WarmSlots(1, 0)
    assert job.on(ev.SlotsWarmed(1, 0)).found(ev.Trigger) == []


def test_nothing_is_warmed_for_an_attempt_that_does_not_run() -> None:
    job = Coordination()
    assert job.on(ev.RescaleRequested(4)).found(ev.WarmSlots) == []
    job.on(ev.AttemptOpened(1, manifest(0), 1))
    assert job.found(ev.WarmSlots) == []


def test_the_first_checkpoint_behind_a_rescale_comes_at_once() -> None:
    _first_after_a_rescale()


def test_mutant_is_killed() -> None:
    def forgets(self: Scale) -> list[Effect]:
        effects = begin(self)
        self.has_changed = False
        return effects

    begin = Scale.begin
    with (
        mutated(Mutant("the pause lasts an interval longer", [(Scale, "begin", forgets)])),
        pytest.raises(ValueError, match="not enough values"),
    ):
        _first_after_a_rescale()


def _first_after_a_rescale() -> None:
    job = asked().on(ev.SlotsWarmed(1, 4))
    job.acked().on(ev.Persisted(1, 1))
    job.committed()
    assert job.only(ev.Rescale).slots == 4
    job.on(ev.AttemptOpened(2, manifest(1), 2))
    now_ms = job.now_ms
    job.on(ev.SlotsRunning(2))
    assert job.at(now_ms + 10).only(ev.Trigger) == ev.Trigger(2, 2, is_last=False)
