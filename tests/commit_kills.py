"""A job that writes into a store is killed while a request of a commit is held, and so is the store."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from tests.answer_proxy import AnswerProxy
from tests.integration.conftest import manifests

WAIT_S = 180.0
KINDS = ("slot", "driver and slots", "server", "frozen slot", "lost answer", "rewind")


class StoreUnderTest(Protocol):
    """A running store. `name`: as the job knows it. `rate`: how many records a second it is sent.
    `write_word`: is in each request that writes rows."""

    name: str
    rate: int
    write_word: bytes
    port: int

    def address(self, port: int) -> str:
        """What the sink is given, by way of a port of ours."""
        ...

    def start(self) -> None: ...

    def kill(self) -> None: ...


class KilledJob:
    """A job without an end, on Spark, that reaches its store by way of a proxy."""

    def __init__(
        self, store: StoreUnderTest, program: Path, start_job: Any, engine: Any, folder: Path, seed: int
    ) -> None:
        self._store = store
        self._program = program
        self._start_job = start_job
        self._engine = engine
        self._folder = folder
        self._chance = random.Random(seed)

    def run(
        self,
        kinds: Sequence[str],
        look: Callable[[str], None],
        is_enough: Callable[[], bool],
    ) -> None:
        """A kill of each kind, and `look` after each, when a checkpoint has been completed since; then the
        job goes on until it is enough, and is stopped."""
        store = self._store
        with AnswerProxy(store.port) as self._proxy:
            proxy, job = self._proxy, self._start()
            job.wait_event("checkpoint_completed", lambda e: e["checkpoint_id"] > 1, timeout=WAIT_S)
            for kind in kinds:
                mark = job.mark
                if kind == "lost answer":
                    proxy.swallow(store.write_word, 1, is_done=self._chance.random() < 0.5)
                    self._engine.wait_for(lambda: proxy.has_swallowed, job, WAIT_S)
                else:
                    proxy.hold(store.write_word)
                    self._engine.wait_for(proxy.holds.is_set, job, WAIT_S)
                    job = self._kill(kind, job)
                after = mark if kind in ("server", "frozen slot", "lost answer") else 0
                job.wait_event("checkpoint_completed", after=after, timeout=WAIT_S)
                look(kind)
            self._engine.wait_for(is_enough, job, WAIT_S)
            self._stop(job)

    def _stop(self, job: Any) -> None:
        """End it with a last checkpoint. On a busy machine there may be none within the job's seconds, which
        is no loss: the job goes on, and is stopped again."""
        for _ in range(3):
            job.kill_group(signal.SIGINT)
            if job.wait(WAIT_S) == 0:
                return
            assert "no last checkpoint within" in job.story(), job.story()
            job = self._start()
            job.wait_event("checkpoint_completed", timeout=WAIT_S)
        raise AssertionError(job.story())

    def _start(self, *options: str) -> Any:
        arguments = (self._store.name, self._store.address(self._proxy.port))
        more = (str(10**9), str(self._store.rate))
        given = ["--slot-timeout", "3 s", "--restart", "fixed:200 ms", *options]
        return self._start_job(
            self._folder, *arguments, *more, program=self._program, master="local[2]", options=given
        )

    def _kill(self, kind: str, job: Any) -> Any:
        """One kill while a request is held; gives the job that goes on."""
        mark, proxy = job.mark, self._proxy
        match kind:
            case "driver and slots" | "rewind":
                job.kill_group()
                job.wait()
                proxy.let_go()
                kept = manifests(self._folder)[0]["checkpoint_id"]
                job = self._start("--from", str(kept)) if kind == "rewind" else self._start()
                job.wait_event("slots_started", timeout=WAIT_S)
            case "server":
                self._store.kill()
                proxy.let_go()
                self._store.start()
            case "slot":
                os.kill(self._chance.choice(job.slots()), signal.SIGKILL)
                proxy.let_go()
                job.wait_event("restarted", after=mark, timeout=WAIT_S)
            case _:
                os.kill(self._chance.choice(job.slots()), signal.SIGSTOP)
                proxy.let_go()
                job.wait_event("restarted", after=mark, timeout=WAIT_S)
        return job
