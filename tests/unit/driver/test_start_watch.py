"""What a start waits for is said from the first moment, and after a while for how long."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from onceflow.runtime.checkpoint.job_phase import JobPhase
from onceflow.runtime.clock import ManualClock
from onceflow.runtime.control.messages import Hello
from onceflow.runtime.driver.enumerators import Enumerators
from onceflow.runtime.driver.start_watch import OPENING, StartWatch
from onceflow.runtime.graph.job_graph import Chain, JobGraph, SourceNode
from onceflow.runtime.hosts.launch import RESTORING
from onceflow.runtime.hosts.local import LocalLauncher
from onceflow.runtime.slot.group import SlotGroup


@dataclass
class AnySource:
    """A source, and its own enumerator, which waits for what it is told to."""

    waits_for: str | None = None
    schema = pa.schema([])
    record_type = None
    is_bounded = False

    def open_enumerator(self, job: str, clock: Any) -> Any:
        return self

    def open_reader(self, context: Any) -> Any: ...

    def waiting_for(self) -> str | None:
        return self.waits_for


def watch_of(source: AnySource) -> StartWatch:
    graph = JobGraph("job", [Chain(0, "read", {"read": SourceNode("read", source, None, {})})], [])
    return StartWatch(Enumerators(graph, ManualClock()), LocalLauncher(1), 1, 0)


def slots() -> SlotGroup:
    def nobody(*_: Any) -> Any: ...

    group = SlotGroup(1, 1, 1, nobody, nobody, 30_000)
    group.begin(nobody, 0)
    return group


def test_while_it_opens_a_source_says_who_does_not_answer() -> None:
    source = AnySource()
    watch = watch_of(source)
    assert watch.waiting(JobPhase.OPENING, None, 0) == (OPENING,)
    source.waits_for = "Kafka does not answer"
    assert watch.waiting(JobPhase.OPENING, None, 1_000) == ("Kafka does not answer",)
    assert watch.waiting(JobPhase.OPENING, None, 3_000) == ("Kafka does not answer, since 3 s",)


def test_while_it_starts_the_host_says_what_it_does_until_records_flow() -> None:
    watch, group = watch_of(AnySource()), slots()
    (said,) = watch.waiting(JobPhase.STARTING, group, 10_000)
    assert said.startswith("1 slots start on threads")
    group.on_host_waiting("needs 4, has 2", 19_000)
    assert watch.waiting(JobPhase.STARTING, group, 20_000) == ("needs 4, has 2, since 10 s",)
    group.on_message(7, Hello(1, 1, 0, 100, "here", ("127.0.0.1", 1), "0"), 20_000)
    (said,) = watch.waiting(JobPhase.STARTING, group, 20_000)
    assert said.startswith(RESTORING)
    assert watch.waiting(JobPhase.RUNNING, group, 21_000) == ()
    assert watch.waiting(JobPhase.RESTARTING, None, 22_000) == ()
