"""What the comparison decides: who takes part, when a run is over, what is right, and the ratios."""

from __future__ import annotations

import dataclasses
import fcntl
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from rich.console import Console

from benchmarks.broker_watch import InputWatch, OutputWatch
from benchmarks.compare import PEERS, UnknownPeer, at_most, chosen, in_turns, said_of, turn
from benchmarks.engine_run import QUIET_S, Ending, EngineRun, own_first_record_s
from benchmarks.environments import Environment, ivy_module, reason_in
from benchmarks.judging import Judge, Verdict
from benchmarks.peers.peer import MAIN, MAP, PASS_THROUGH, Peer
from benchmarks.results_table import lines, table
from benchmarks.workload import CLOSING_MS, START_MS
from onceflow.cli.audit import RawRecords

EXACT = Verdict(expected=100, found=100, missing=0, doubled=0, wrong=0, unreadable=0)
WRONG = Verdict(expected=100, found=100, missing=0, doubled=0, wrong=7, unreadable=0)


def peer(name: str, *workloads: str) -> Peer:
    return Peer(name, name.title(), "exactly-once", workloads or (MAIN,), lambda say: pytest.fail("prepared"))


def run(name: str, cpu_s: float, verdict: Verdict | None = EXACT, **changes: Any) -> EngineRun:
    figures = {"start_s": 1.0, "wall_s": 2.0, "cpu_s": cpu_s, "rss_mb": 100} | changes
    return EngineRun(name, 1_000_000, verdict=verdict, **figures)


# --- Who takes part -----------------------------------------------------------------------------------


def test_peers_are_chosen_by_name_once_each_and_in_the_given_order() -> None:
    known = [peer("flink"), peer("spark"), peer("quix")]
    assert [p.name for p in chosen(" Spark,flink,,spark ", known, MAIN)] == ["spark", "flink"]
    assert [p.name for p in chosen("", known, MAIN)] == ["flink", "spark", "quix"]


def test_onceflow_itself_may_be_named_and_is_not_a_peer() -> None:
    assert [p.name for p in chosen("onceflow,flink", [peer("flink"), peer("spark")], MAIN)] == ["flink"]
    assert chosen("onceflow", [peer("flink")], MAIN) == []


def test_an_unknown_peer_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(UnknownPeer, match=r"no peer 'flnik': did you mean 'flink'\? there are flink, spark"):
        chosen("flnik", [peer("flink"), peer("spark")], MAIN)


def test_only_peers_that_have_the_workload_take_part() -> None:
    known = [peer("flink"), peer("spark", MAIN, PASS_THROUGH)]
    assert [p.name for p in chosen("", known, PASS_THROUGH)] == ["spark"]
    assert chosen("flink", known, PASS_THROUGH) == []


def test_names_of_peers_are_unique_and_each_workload_of_theirs_has_a_rival() -> None:
    names = [p.name for p in PEERS]
    assert len(set(names)) == len(names)
    assert {workload for p in PEERS for workload in p.workloads} == {MAIN, PASS_THROUGH, MAP}


def test_some_peers_may_get_fewer_records() -> None:
    assert at_most("quix=300000, bytewax=5") == [("quix", 300_000), ("bytewax", 5)]
    with pytest.raises(ValueError, match="invalid literal"):
        at_most("quix")


def test_rounds_are_interleaved_and_each_begins_with_another() -> None:
    order = [(number, p.name) for number, p in in_turns([peer("a"), peer("b"), peer("c")], 3)]
    assert order == [
        *((1, "a"), (1, "b"), (1, "c")),
        *((2, "b"), (2, "c"), (2, "a")),
        *((3, "c"), (3, "a"), (3, "b")),
    ]


def test_a_turn_is_held_against_others_and_given_back(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    with turn(lock), lock.open("a") as other, pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with lock.open("a") as other:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


# --- When it began and when it is over ----------------------------------------------------------------


def test_the_first_fetch_is_told_from_a_trickle_of_answers() -> None:
    watch = InputWatch()
    for step in range(200):  # 100 s of metadata, 1 MB in all
        watch.look(step * 0.5, step * 5_000)
    assert watch.first_read_s is None
    watch.look(100.5, 199 * 5_000 + 1_000_000)
    assert watch.first_read_s == 100.5
    watch.look(101.0, 50_000_000)
    assert watch.first_read_s == 100.5


def test_a_first_fetch_between_two_late_looks_is_seen() -> None:
    watch = InputWatch()
    watch.look(0.0, 1_000)
    watch.look(3.0, 1_200)
    watch.look(9.0, 2_000_000)
    assert watch.first_read_s == 9.0


@dataclasses.dataclass
class Partitions:
    """`end` records in each, if there are leaders."""

    has_leaders: bool
    end: int = 0


class ForgetfulConsumer:
    """One that was asked while the broker had no leaders fails ever after."""

    def __init__(self, partitions: Partitions) -> None:
        self._partitions = partitions
        self._is_stuck = False

    def get_watermark_offsets(self, partition: Any, timeout: float) -> tuple[int, int]:
        self._is_stuck |= not self._partitions.has_leaders
        if self._is_stuck:
            raise KafkaException("no such partition")
        return 0, self._partitions.end

    def close(self) -> None:
        pass


def test_rows_are_seen_again_after_the_broker_had_no_leaders() -> None:
    partitions = Partitions(has_leaders=False)
    watch = OutputWatch("broker:9092", "totals", 2, lambda settings: ForgetfulConsumer(partitions))
    watch.look(1.0)
    partitions.has_leaders, partitions.end = True, 50
    watch.look(2.0)
    watch.look(3.0)
    assert (watch.visible, watch.last_change_s) == (100, 2.0)


def test_offsets_alone_do_not_complete_a_run_for_they_count_markers() -> None:
    ending = Ending(expected=100)
    assert not ending.may_be_complete(now_s=10.0, latest_s=0.0, visible=99)
    assert not ending.may_be_complete(now_s=1.0, latest_s=0.0, visible=104), (
        "more may come at the next commit"
    )
    assert ending.may_be_complete(now_s=3.0, latest_s=0.0, visible=104)
    ending.counted(rows=96, visible=104)
    assert not ending.is_over(now_s=3.0, latest_s=0.0, cpu_s=0.0)
    assert not ending.may_be_complete(now_s=4.0, latest_s=0.0, visible=104), "counted already"
    assert ending.may_be_complete(now_s=9.0, latest_s=5.0, visible=112)
    ending.counted(rows=100, visible=112)
    assert ending.is_over(now_s=9.0, latest_s=5.0, cpu_s=20.0)


def test_a_job_that_is_quiet_is_over_only_if_it_is_idle_too() -> None:
    ending = Ending(expected=100)
    assert not ending.is_over(now_s=QUIET_S - 1, latest_s=0.0, cpu_s=0.0)
    assert not ending.is_over(now_s=QUIET_S + 1, latest_s=0.0, cpu_s=0.2 * QUIET_S), "it computes"
    assert ending.is_over(now_s=QUIET_S + 1, latest_s=0.0, cpu_s=0.02 * QUIET_S)


# --- What is right ------------------------------------------------------------------------------------


class Topics:
    """Topics of JSON objects, in place of a TopicReader."""

    def __init__(self, **topics: list[dict[str, Any]]) -> None:
        self.topics = topics

    def chunks(self, topic: str, on_progress: Callable[[int, int], None]) -> Iterator[RawRecords]:
        values = [json.dumps(row).encode() for row in self.topics[topic]]
        yield RawRecords(values, 0, range(len(values)))


def purchase(user: str, second: int, amount: int) -> dict[str, Any]:
    return {"user": user, "amount": amount, "ts": START_MS + second * 1000, "item": "i1", "type": "x"}


def total(user: str, end_second: int, count: int, amount: int) -> dict[str, Any]:
    return {"user": user, "window_end": START_MS + end_second * 1000, "count": count, "total": amount}


BOUGHT = [
    purchase("a", 1, 5),
    purchase("a", 2, 6),
    purchase("b", 11, 7),
    purchase("a", CLOSING_MS // 1000, 1),
]
RIGHT = [total("a", 10, 2, 11), total("b", 20, 1, 7)]


def judged(output: list[dict[str, Any]], workload: str = MAIN) -> Verdict:
    reader: Any = Topics(bought=BOUGHT, out=output)
    return Judge(reader, "bought", workload).verdict("out")


def test_a_right_output_is_exact_whether_or_not_the_closing_windows_are_in_it() -> None:
    assert judged(RIGHT) == Verdict(2, 2, 0, 0, 0, 0)
    closing = total("a", CLOSING_MS // 1000 + 10, 1, 1)
    assert str(judged([*RIGHT, closing])) == "exact"


def test_what_is_wrong_with_an_output_is_counted_by_kind() -> None:
    verdict = judged([total("a", 10, 1, 5), RIGHT[0]])
    assert (verdict.missing, verdict.doubled, verdict.wrong) == (1, 1, 1)
    assert str(verdict) == "WRONG: 1 wrong, 1 missing, 1 doubled of 2"


def test_a_copy_is_judged_record_by_record() -> None:
    assert judged(BOUGHT, PASS_THROUGH).is_right
    assert judged(BOUGHT[1:], PASS_THROUGH).missing == 1
    assert judged([*BOUGHT, BOUGHT[0]], PASS_THROUGH).doubled == 1


def test_a_mapped_copy_has_a_cent_more_in_each_record() -> None:
    mapped = [{**bought, "amount": bought["amount"] + 1} for bought in BOUGHT]
    assert judged(mapped, MAP).is_right
    assert not judged(BOUGHT, MAP).is_right


# --- Figures ------------------------------------------------------------------------------------------


def test_the_ratio_is_that_of_the_medians() -> None:
    runs = [run("onceflow", s) for s in (0.5, 1.0, 9.0)] + [run("flink", s) for s in (3.0, 4.0, 100.0)]
    ours, theirs = lines([peer("onceflow"), peer("flink")], runs)
    assert (ours.k_per_cpu_s, theirs.k_per_cpu_s) == (1_000.0, 250.0)
    assert (ours.ratio, theirs.ratio) == (1.0, 4.0)
    assert theirs.k_per_cpu_s_range == (10.0, pytest.approx(333.3, abs=0.1))
    assert theirs.wall_ratio == 1.0


def test_one_wrong_run_makes_the_engine_wrong_and_its_figure_stays() -> None:
    runs = [run("quix", 10.0), run("quix", 10.0, WRONG), run("quix", 10.0)]
    (line,) = lines([peer("quix")], runs)
    assert not line.is_right
    assert line.outcome == "WRONG: 7 wrong of 100"
    assert line.k_per_cpu_s == 100.0
    assert line.ratio is None, "nothing of onceflow's to compare with"


def test_runs_without_a_figure_are_named_and_do_not_count() -> None:
    failed = EngineRun("flink", 1_000, reason="not done within 150 s, 3 of 100 rows")
    runs = [run("flink", 4.0), failed, EngineRun("spark", 1_000, reason="it ended with exit code 1")]
    flink, spark = lines([peer("onceflow"), peer("flink"), peer("spark")], runs)
    assert flink.k_per_cpu_s == 250.0
    assert (flink.outcome, flink.is_right) == ("not done within 150 s, 3 of 100 rows (in 1 of 2 runs)", False)
    assert (spark.outcome, spark.k_per_cpu_s) == ("it ended with exit code 1", None)


def test_the_table_has_the_fastest_first_and_says_who_could_not_run() -> None:
    runs = [run("quix", 40.0, WRONG), run("onceflow", 1.0)]
    found = lines([peer("quix"), peer("onceflow")], runs)
    console = Console(width=200, record=True, file=None, quiet=False, force_terminal=False)
    with console.capture() as captured:
        console.print(table(found, {"pathway": "pip failed: no wheel"}))
    rows = [line for line in captured.get().splitlines() if "│" in line]
    assert ["Onceflow" in rows[0], "Quix" in rows[1], "pathway" in rows[2]] == [True] * 3
    assert "40.0" in rows[1]
    assert "WRONG: 7 wrong of 100" in rows[1]
    assert "not run: pip failed: no wheel" in rows[2]


def test_a_run_is_said_in_one_line() -> None:
    assert said_of(run("flink", 4.0)).startswith(
        "flink: 250.0 k records/CPU-s, 500.0 k records/s, start 1.0 s"
    )
    assert "no figure: not done" in said_of(EngineRun("spark", 1, reason="not done"))


def test_an_engine_may_say_when_it_got_its_first_record() -> None:
    log = 'WARNING: x\n{"event": "first_record", "ts_ms": 1, "first_record_ms": 1795307935288}\n'
    assert own_first_record_s(log) == 1795307935.288
    assert own_first_record_s("WARNING: x") is None
    said = said_of(run("onceflow", 4.0, own_cpu_s=2.0))
    assert "250.0 k records/CPU-s (500.0 by its own first record)" in said


# --- Installing ---------------------------------------------------------------------------------------


def test_the_reason_of_a_failed_install_is_its_last_error() -> None:
    text = "Collecting x\nERROR: No matching distribution for x==9\n[notice] a new pip\n"
    assert reason_in(text) == "ERROR: No matching distribution for x==9"
    assert reason_in("one\ntwo\n\n") == "two"
    assert reason_in("") == "no output"


def test_jars_are_asked_for_with_or_without_what_they_depend_on() -> None:
    text = ivy_module(Environment("x", jars=("a:b:1",), jars_alone=("c:d:2",)))
    assert '<dependency org="a" name="b" rev="1" transitive=\'true\'' in text
    assert '<dependency org="c" name="d" rev="2" transitive=\'false\'' in text
