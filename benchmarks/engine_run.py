"""One run of one engine, watched from outside until its output is complete, and then ended."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.broker_watch import InputWatch, OutputWatch, bytes_written
from benchmarks.environments import reason_in
from benchmarks.judging import Judge, Verdict, rows_visible
from benchmarks.peers.peer import Assignment, Launch, Peer
from benchmarks.sampler import CpuSampler
from onceflow.cli.audit_topics import TopicReader
from onceflow.connectors.kafka.embedded import EmbeddedKafka

_LOOK_S = 0.03
_SETTLED_S = 2.5
"""Longer than a commit interval (1 s): after as long without a new row the last one may be there."""
QUIET_S = 40.0
_QUIET_CORES = 0.07
"""A job with fewer rows than expected that uses less than this for QUIET_S will not write more."""
_END_S = 5.0


@dataclass(frozen=True, slots=True)
class EngineRun:
    """What came of a run. Without a verdict it failed, or took too long: `reason` says so."""

    peer: str
    records: int
    start_s: float = 0.0
    """From the command until the broker sent the first records."""
    wall_s: float = 0.0
    """From then until readers could see the last row."""
    cpu_s: float = 0.0
    """CPU seconds of all the job's processes in that time."""
    rss_mb: int = 0
    """The most that all of them held together, at any time."""
    own_cpu_s: float | None = None
    """The same from the first record that the job's code got, if the engine says when that was. Not in any
    ratio: an engine that fetches ahead while it still starts looks better by it than by cpu_s."""
    verdict: Verdict | None = None
    reason: str = ""

    @property
    def has_figure(self) -> bool:
        return self.verdict is not None

    @property
    def k_per_cpu_s(self) -> float:
        return self.records / self.cpu_s / 1000

    @property
    def k_per_s(self) -> float:
        return self.records / self.wall_s / 1000


@dataclass(slots=True)
class Bench:
    """What all runs share: the broker, its input topic with that many records, the answer."""

    kafka: EmbeddedKafka
    reader: TopicReader
    workload: str
    input: str
    records: int
    partitions: int
    judge: Judge
    servers: str
    """Where the engines find the broker: the listener that is compared on. The watchers use the open one."""
    security: Mapping[str, str]
    """See Assignment."""

    def run(self, peer: Peer, launch: Callable[[Assignment], Launch], folder: Path, log: Path) -> EngineRun:
        """Start, watch, end and judge. What the job prints is kept in `log`."""
        output = f"{peer.name}-{time.time_ns()}"
        self.kafka.create_topic(output, self.partitions)
        with tempfile.TemporaryDirectory(
            prefix=f"{peer.name}-", dir=folder, ignore_cleanup_errors=True
        ) as name:
            assignment = Assignment(
                self.workload, self.servers, self.input, output, self.partitions, Path(name), self.security
            )
            watched = self._watch(peer, launch(assignment), output, log)
        if watched.reason:
            return watched
        verdict = self.judge.verdict(output)
        return EngineRun(
            peer.name, self.records, watched.start_s, watched.wall_s, watched.cpu_s, watched.rss_mb,
            watched.own_cpu_s, verdict,
        )  # fmt: skip

    def _watch(self, peer: Peer, launch: Launch, output: str, log_file: Path) -> EngineRun:
        reads = InputWatch()
        rows = OutputWatch(self.kafka.bootstrap_servers, output, self.partitions)
        ending = Ending(self.judge.expected)
        broker = psutil.Process(self.kafka.pid)
        reads.look(time.time(), bytes_written(broker))
        started_s = time.time()
        reason = ""
        with log_file.open("wb") as log, running(launch, log.fileno()) as (job, sampler):
            while not reason:
                now_s = time.time()
                reads.look(now_s, bytes_written(broker))
                rows.look(now_s)
                latest_s = rows.last_change_s or reads.first_read_s or now_s
                if ending.may_be_complete(now_s, latest_s, rows.visible):
                    ending.counted(rows_visible(self.reader, output), rows.visible)
                if ending.is_over(now_s, latest_s, sampler.cpu_between(now_s - QUIET_S, now_s)):
                    break
                ended = job.poll()
                if ended == 0:  # its input ended
                    rows.look(time.time())
                    break
                if ended is not None:
                    reason = f"it ended with exit code {job.returncode}"
                elif now_s - started_s > peer.time_limit_s:
                    if rows_visible(self.reader, output) >= self.judge.expected:
                        break
                    reason = f"not done within {peer.time_limit_s:.0f} s"
                time.sleep(_LOOK_S)
        rows.close()
        first_s, last_s = reads.first_read_s, rows.last_change_s
        if reason or first_s is None or last_s is None:
            unseen = "nobody saw it read its input" if first_s is None else "nobody saw it write a row"
            return EngineRun(peer.name, self.records, reason=self._why(reason or unseen, output, log_file))
        own_s = own_first_record_s(log_file.read_text(errors="replace"))
        return EngineRun(
            peer.name,
            self.records,
            start_s=first_s - started_s,
            wall_s=last_s - first_s,
            cpu_s=sampler.cpu_between(first_s, last_s),
            rss_mb=sampler.rss_max >> 20,
            own_cpu_s=None if own_s is None else sampler.cpu_between(own_s, last_s),
        )

    def _why(self, reason: str, output: str, log_file: Path) -> str:
        """Why there is no figure, how far it came, and what the job said last if it failed."""
        found = rows_visible(self.reader, output)
        text = f"{reason}, {found:,} of {self.judge.expected:,} rows"
        said = reason_in(log_file.read_text(errors="replace")) if "exit code" in reason else ""
        return f"{text}: {said}" if said else text


class Ending:
    """When a run is over: its output is complete, or it will write no more. Decides; looks at nothing.

    Offsets count transaction markers too, so enough of them do not mean enough rows: then the rows are
    counted, once for each number of offsets, since that means to read them all.
    """

    def __init__(self, expected: int) -> None:
        self._expected = expected
        self._counted_at = -1
        self._is_complete = False

    def may_be_complete(self, now_s: float, latest_s: float, visible: int) -> bool:
        """Whether to count now. `latest_s`: when the last offset became visible, `visible` how many are."""
        is_settled = now_s - latest_s >= _SETTLED_S
        return is_settled and visible >= self._expected and visible != self._counted_at

    def counted(self, rows: int, visible: int) -> None:
        self._counted_at = visible
        self._is_complete = rows >= self._expected

    def is_over(self, now_s: float, latest_s: float, cpu_s: float) -> bool:
        """`cpu_s`: what the job has used in the last QUIET_S."""
        return self._is_complete or (now_s - latest_s >= QUIET_S and cpu_s < _QUIET_CORES * QUIET_S)


def own_first_record_s(log: str) -> float | None:
    """When the job's code got its first record, by its own word: onceflow's event `first_record`."""
    found = re.search(r'"first_record_ms": ?(\d+)', log)
    return int(found[1]) / 1000 if found else None


@contextlib.contextmanager
def running(launch: Launch, log: int) -> Iterator[tuple[subprocess.Popen[bytes], CpuSampler]]:
    """The job and its sampler; ends the job with all its processes."""
    job = subprocess.Popen(
        list(map(str, launch.command)),
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        env={**os.environ, **launch.variables},
        start_new_session=True,
    )
    sampler = CpuSampler(job.pid)
    try:
        yield job, sampler
    finally:
        if job.poll() is None:
            job.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                job.wait(_END_S)
        sampler.close()
        for process in sampler.seen.values():
            with contextlib.suppress(psutil.Error):  # is_running: not another process by the same id
                if process.is_running():
                    process.kill()
        job.wait(_END_S)
