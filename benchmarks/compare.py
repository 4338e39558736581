"""onceflow and its peers on the same input and broker, in turns; a result is judged before its figure counts.

    python benchmarks/compare.py --peers flink,spark --runs 3 --records 4000000
    make bench PEERS=flink,spark RUNS=3 RECORDS=4000000
    python benchmarks/compare.py --peers spark --listener SASL_SSL

What is measured, and what it can't tell: benchmarks/README.md. Linux only.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console

from benchmarks import results_table
from benchmarks.engine_run import Bench, EngineRun
from benchmarks.environments import Unavailable, cache_dir
from benchmarks.judging import Judge
from benchmarks.kept_results import RESULTS, keep, stamped
from benchmarks.peers import (
    bytewax,
    flink,
    kafka_streams,
    onceflow,
    onceflow_spark,
    pathway,
    pyflink,
    quix,
    spark,
)
from benchmarks.peers.peer import MAIN, WORKLOADS, Assignment, Launch, Peer
from benchmarks.secured import MECHANISMS, PROTOCOLS, broker_options, client_settings, write_certificate
from benchmarks.workload import USERS, Purchases, load
from onceflow.cli.audit_topics import TopicReader
from onceflow.connectors.kafka.embedded import EmbeddedKafka
from onceflow.runtime.errors import OnceflowError

PEERS = (
    *onceflow.PEERS, *flink.PEERS, *spark.PEERS, *onceflow_spark.PEERS, *quix.PEERS,
    *kafka_streams.PEERS, *bytewax.PEERS, *pathway.PEERS, *pyflink.PEERS,
)  # fmt: skip
PARTITIONS = 4
OPEN = "PLAINTEXT"
_FAILURES_MAX = 2
"""After so many an engine gets no more turns: each may have taken its whole time limit."""
BROKER = {
    # Event times of the past as Kafka timestamps, which some engines write, must not delete output or state.
    "log.retention.ms": "-1",
    "log.retention.bytes": "-1",
    # An embedded broker is shut out after a silent second, so that it is soon back after a kill. Here an
    # engine may want both cores for longer, and whoever looks then would find topics without leaders.
    "broker.session.timeout.ms": "120000",
}


class UnknownPeer(Exception):
    """There is no peer of this name; names those that there are."""


def chosen(text: str, peers: Sequence[Peer], workload: str) -> list[Peer]:
    """The peers of a comma-separated list that have this workload; all that have it for an empty one.

    Raises UnknownPeer. Each comes once, in the order of the list.
    """
    by_name = {peer.name: peer for peer in peers}
    names = dict.fromkeys(name.strip().lower() for name in text.split(",") if name.strip())
    names.pop(results_table.OURS, None)
    for name in names:
        if name not in by_name:
            near = get_close_matches(name, by_name, 1)
            meant = f"did you mean {near[0]!r}? " if near else ""
            raise UnknownPeer(f"there is no peer {name!r}: {meant}there are {', '.join(by_name)}")
    wanted = [by_name[name] for name in names] if text.strip() else list(peers)
    return [peer for peer in wanted if workload in peer.workloads]


def in_turns(peers: Sequence[Peer], runs: int) -> Iterator[tuple[int, Peer]]:
    """Each peer once in each round; each round begins with the next one, so that none is always first."""
    for number in range(runs):
        first = number % len(peers)
        for peer in (*peers[first:], *peers[:first]):
            yield number + 1, peer


@contextlib.contextmanager
def turn(lock: Path | None) -> Iterator[None]:
    """Holds the lock file: benchmarks on one machine that name the same one wait for each other."""
    if lock is None:
        yield
        return
    with lock.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


class Comparison:
    """The broker, its inputs (one for each number of records) and what came of the runs so far."""

    def __init__(
        self, options: argparse.Namespace, console: Console, folder: Path, security: Mapping[str, str]
    ) -> None:
        """`security`: see Assignment."""
        self._options = options
        self._console = console
        self._folder = folder
        self._security = security
        self._benches: dict[int, Bench] = {}
        self._ready: dict[str, Callable[[Assignment], Launch]] = {}
        self.unavailable: dict[str, str] = {}
        self.runs: list[EngineRun] = []

    def prepare(self, peers: Sequence[Peer]) -> list[Peer]:
        """The peers that can run here; the others are noted with their reason."""
        for peer in peers:
            try:
                if self._security and self._options.workload not in peer.secured_workloads:
                    raise Unavailable("its job can be told of no other listener than PLAINTEXT")
                self._ready[peer.name] = peer.prepare(self._saying(peer.name))
            except Unavailable as error:
                self.unavailable[peer.name] = str(error)
                self._console.print(f"{peer.name} can't be run here: {error}", markup=False)
        return [peer for peer in peers if peer.name in self._ready]

    def run(self, kafka: EmbeddedKafka, peers: Sequence[Peer]) -> None:
        with contextlib.closing(TopicReader(kafka.bootstrap_servers, {})) as reader:
            failures: Counter[str] = Counter()
            for number, peer in in_turns(peers, self._options.runs):
                if failures[peer.name] >= _FAILURES_MAX:
                    continue
                records = self._records(peer)
                bench = self._benches.get(records) or self._load(kafka, reader, records)
                self._benches[records] = bench
                log = self._log_file(peer.name, number)
                try:
                    with turn(self._options.lock):
                        run = bench.run(peer, self._ready[peer.name], self._folder, log)
                except (OSError, OnceflowError, psutil.Error) as error:  # the other engines go on
                    run = EngineRun(peer.name, bench.records, reason=f"the run broke: {error}")
                self.runs.append(run)
                self._console.print(f"run {number}, {said_of(run)}", markup=False, highlight=False)
                failures[peer.name] += not run.has_figure

    def _records(self, peer: Peer) -> int:
        fewer: dict[str, int] = dict(self._options.at_most)
        asked: int = self._options.records
        return min(asked, fewer.get(peer.name, asked), peer.records_max.get(self._options.workload, asked))

    def _load(self, kafka: EmbeddedKafka, reader: TopicReader, records: int) -> Bench:
        self._saying("input")(f"loading {records:,} records and computing the answer")
        purchases = Purchases(records, PARTITIONS, users=self._options.users)
        topic = kafka.create_topic(f"purchases-{records}", PARTITIONS)
        load(kafka.bootstrap_servers, topic, purchases, lambda done: None)
        judge = Judge(reader, topic, self._options.workload)
        servers = kafka.address(self._options.listener) if self._security else kafka.bootstrap_servers
        return Bench(
            kafka, reader, self._options.workload, topic, purchases.total, PARTITIONS, judge, servers,
            self._security,
        )  # fmt: skip

    def _log_file(self, peer: str, number: int) -> Path:
        folder = cache_dir() / "logs"
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"{peer}-{self._options.workload}-{number}.log"

    def _saying(self, name: str) -> Callable[[str], None]:
        return lambda text: self._console.print(f"{name}: {text}", markup=False, highlight=False)


def broker_with(is_open: bool, folder: Path) -> dict[str, Any]:
    """For EmbeddedKafka; with secured listeners beside the open one, unless that is the one compared on."""
    if is_open:
        return {"properties": BROKER}
    write_certificate(folder)
    options = broker_options(folder)
    return {**options, "properties": {**options["properties"], **BROKER}}


def said_of(run: EngineRun) -> str:
    """One run in one line."""
    if not run.has_figure:
        return f"{run.peer}: no figure: {run.reason} (log in {cache_dir() / 'logs'})"
    own = f" ({run.records / run.own_cpu_s / 1000:,.1f} by its own first record)" if run.own_cpu_s else ""
    return (
        f"{run.peer}: {run.k_per_cpu_s:,.1f} k records/CPU-s{own}, {run.k_per_s:,.1f} k records/s, "
        f"start {run.start_s:.1f} s, {run.rss_mb:,} MB, {run.verdict}"
    )


def at_most(text: str) -> list[tuple[str, int]]:
    """quix=300000,bytewax=300000 as pairs. ValueError for anything else."""
    pairs = [pair.partition("=") for pair in text.split(",")]
    return [(name.strip(), int(number)) for name, _, number in pairs]


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = ", ".join(peer.name for peer in PEERS)
    parser.add_argument("--peers", default="", help=f"comma-separated; all by default: {names}")
    parser.add_argument("--workload", choices=WORKLOADS, default=MAIN)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--records", type=int, default=4_000_000, help="slow peers get fewer, as they say")
    parser.add_argument("--users", type=int, default=USERS, help="keys of the main job")
    parser.add_argument(
        "--at-most",
        type=at_most,
        default=[],
        metavar="PEER=RECORDS,...",
        help="fewer records for some, where the machine is slow",
    )
    parser.add_argument("--master", default="local[1]", help="for onceflow")
    parser.add_argument("--parallelism", type=int, default=1, help="for onceflow")
    parser.add_argument("--listener", choices=PROTOCOLS, default=OPEN, help="by which all reach the broker")
    parser.add_argument("--mechanism", choices=MECHANISMS, default="SCRAM-SHA-512", help="with SASL")
    parser.add_argument("--time-limit", type=float, help="seconds of each run; else as each peer says")
    parser.add_argument("--lock", type=Path, help="a file that each run locks: others wait for their turn")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder for JSON and SVG")
    return parser.parse_args(arguments)


def main() -> None:
    options = parse(sys.argv[1:])
    console = Console()
    ours = onceflow.peer(options.master, options.parallelism)
    try:
        wanted = [ours, *chosen(options.peers, PEERS, options.workload)]
    except UnknownPeer as error:
        raise SystemExit(f"compare.py: {error}") from None
    with tempfile.TemporaryDirectory(prefix="onceflow-bench-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        is_open = options.listener == OPEN
        security = {} if is_open else client_settings(folder, options.listener, options.mechanism)
        comparison = Comparison(options, console, folder, security)
        peers = comparison.prepare(wanted)
        if options.time_limit:
            peers = [replace(peer, time_limit_s=options.time_limit) for peer in peers]
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            with EmbeddedKafka(folder / "kafka", **broker_with(is_open, folder)) as kafka:
                comparison.run(kafka, peers)
        except KeyboardInterrupt:
            console.print("interrupted: what follows is of the runs that were done")
    found = results_table.lines(peers, comparison.runs)
    console.print(results_table.table(found, comparison.unavailable))
    settings = {"workload": options.workload, "partitions": PARTITIONS, "rounds": options.runs}
    settings |= {} if is_open else {"listener": options.listener}
    result = stamped(results_table.document(settings, found, comparison.runs, comparison.unavailable))
    kind = f"compare-{options.workload}" + ("" if is_open else f"-{options.listener.lower()}")
    path = keep(kind, result, options.results)
    try:
        from benchmarks.plot import plot

        plot(result, path.with_suffix(".svg"))
    except ImportError:
        console.print("no plot: matplotlib is not installed (dependency group 'bench')")
    console.print(f"kept in {path}", markup=False, soft_wrap=True)


if __name__ == "__main__":
    main()
