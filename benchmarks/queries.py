"""Questions to `onceflow serve-state` while its job runs, and what they cost the job.

    python -m benchmarks.queries --keys 1000000 --seconds 10 --rounds 3

A job counts `--rate` records a second of so many keys in state. In turns it is alone for so many seconds, and
beside a server that follows it and a client that asks for one key `--per-s` times a second. Then the job is
stopped, and the client asks as fast as it can: for one key, and in bulk. Prints JSON: records for each
CPU-second of the job's processes, alone and beside the server, one figure a round; CPU seconds of the server
each second; and milliseconds of single questions, while the job ran and after it.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil

from benchmarks.sampler import CpuSampler
from onceflow import StateClient

ONCEFLOW = str(Path(sys.executable).with_name("onceflow"))
JOB = str(Path(__file__).with_name("jobs") / "asked_totals.py")
TABLE = ("totals", "windows")
BULK = 1_000
WAIT_S = 240.0


class Running:
    """The job, and what it has said of itself."""

    def __init__(self, folder: Path, keys: int, rate: float, interval: str) -> None:
        said = {"ASKED_KEYS": str(keys), "ASKED_RATE": str(rate), "ASKED_FOLDER": str(folder / "days")}
        command = [ONCEFLOW, "run", JOB, "--master", "threads[1]", "--checkpoint-interval", interval]
        command += ["--checkpoint-dir", str(folder / "checkpoints")]
        self._job = subprocess.Popen(
            command, env={**os.environ, **said}, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self._sampler = CpuSampler(self._job.pid)
        self._progress: list[tuple[float, int]] = []
        self.checkpoints = 0
        threading.Thread(target=self._read, daemon=True).start()

    def wait_for_checkpoints(self, count: int) -> None:
        deadline_s = time.monotonic() + WAIT_S
        while self.checkpoints < count:
            assert time.monotonic() < deadline_s, "no checkpoint"
            time.sleep(0.05)

    def records_per_cpu_s(self, seconds: float) -> int:
        """What it does from now on, for so long."""
        first = len(self._progress)
        time.sleep(seconds + 1)
        (began_s, before), (ended_s, after) = self._progress[first], self._progress[-1]
        return round((after - before) / self._sampler.cpu_between(began_s, ended_s))

    def stop(self) -> None:
        self._job.terminate()
        assert self._job.wait() == 0, "the job failed"
        self._sampler.close()

    def _read(self) -> None:
        assert self._job.stdout is not None
        for line in self._job.stdout:
            event = json.loads(line)
            self.checkpoints += event["event"] == "checkpoint_completed"
            if event["event"] == "progress":
                self._progress.append((event["ts_ms"] / 1e3, event["records_in"]))


class Asker:
    """A client on a thread: one key at a time, at a rate, until it is closed."""

    def __init__(self, client: StateClient, keys: int, per_s: float) -> None:
        self._client, self._keys, self._pause_s = client, keys, 1 / per_s
        self.took_ms: list[float] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(self._pause_s):
            self.took_ms.append(asked_ms(self._client, [random.randrange(self._keys)]))


def asked_ms(client: StateClient, keys: Sequence[int]) -> float:
    began_s = time.perf_counter()
    client.get_many(*TABLE, keys)
    return (time.perf_counter() - began_s) * 1e3


def of(took_ms: Sequence[float]) -> dict[str, float]:
    """The median and the 99th percentile."""
    found = sorted(took_ms)
    p50, p99 = (round(found[len(found) * part // 100], 2) for part in (50, 99))
    return {"questions": len(found), "p50_ms": p50, "p99_ms": p99}


@contextmanager
def served(folder: Path) -> Iterator[tuple[psutil.Process, StateClient]]:
    """A server of what is in this folder, with the table in its memory."""
    command = [ONCEFLOW, "serve-state", str(folder / "checkpoints"), "--table", ".".join(TABLE)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    url, token = server.stdout.readline().strip(), server.stdout.readline().split()[-1]
    client = StateClient(url, token)
    client.tables()
    yield psutil.Process(server.pid), client
    server.terminate()
    server.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--rate", type=float, default=2_000_000.0, help="records a second of the job")
    parser.add_argument("--seconds", type=float, default=10.0, help="alone and beside, in each round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--per-s", type=float, default=100.0, help="questions a second while the job runs")
    parser.add_argument("--checkpoint-interval", default="5 s")
    given = parser.parse_args()
    alone, beside, server_s, while_it_runs = [], [], [], []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        job = Running(folder, given.keys, given.rate, given.checkpoint_interval)
        job.wait_for_checkpoints(2)
        for _ in range(given.rounds):
            alone.append(job.records_per_cpu_s(given.seconds))
            with served(folder) as (server, client):
                before = server.cpu_times()
                asker = Asker(client, given.keys, given.per_s)
                beside.append(job.records_per_cpu_s(given.seconds))
                asker.close()
                after = server.cpu_times()
                took_s = after.user + after.system - before.user - before.system
                server_s.append(round(took_s / (given.seconds + 1), 2))
                while_it_runs += asker.took_ms
        job.stop()
        with served(folder) as (_, client):
            one = [asked_ms(client, [random.randrange(given.keys)]) for _ in range(3_000)]
            bulk = [asked_ms(client, random.sample(range(given.keys), BULK)) for _ in range(100)]
    found = {
        "keys": given.keys,
        "load": os.getloadavg()[0],
        "job_records_per_cpu_s": {"alone": alone, "beside": beside},
        "server_cpu_s_per_s": server_s,
        "one_key_while_it_runs": of(while_it_runs),
        "one_key": of(one),
        "keys_per_s_in_bulk": round(BULK * len(bulk) / sum(bulk) * 1e3),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
