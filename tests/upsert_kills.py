"""A job that upserts into a store is killed inside its commits, and so is the store: whatever happens, the
last row of each key is there in the end, and no count goes back on the way."""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from onceflow.connectors.generator.source import SPLITS
from tests.answer_proxy import AnswerProxy
from tests.integration.conftest import manifests
from tests.integration.jobs.upserted_rows import USERS

PROGRAM = Path(__file__).parent / "integration" / "jobs" / "upserted_rows.py"
WAIT_S = 180.0
AHEAD = 1_000
"""How far one split of the source may be ahead of another, in records."""
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

    def numbers(self) -> list[int]:
        """The keys of the rows."""
        ...

    def counts(self) -> Mapping[str, int]: ...

    def start(self) -> None: ...

    def kill(self) -> None: ...


def run_with_kills(
    kinds: list[str], store: StoreUnderTest, start_job: Any, engine: Any, folder: Path
) -> None:
    """Each kill comes while a request is held that writes rows. The job has no end: it is stopped."""
    chance = random.Random(len(kinds))
    with AnswerProxy(store.port) as proxy:

        def start(*options: str) -> Any:
            arguments = (store.name, store.address(proxy.port), str(10**9), str(store.rate))
            given = ["--slot-timeout", "3 s", "--restart", "fixed:200 ms", *options]
            return start_job(folder, *arguments, program=PROGRAM, master="local[2]", options=given)

        job, counts = start(), dict(store.counts())
        job.wait_event("checkpoint_completed", lambda e: e["bytes"] > 0, timeout=WAIT_S)
        for kind in kinds:
            mark = job.mark
            if kind == "lost answer":
                proxy.swallow(store.write_word, 1, is_done=chance.random() < 0.5)
                engine.wait_for(lambda: proxy.has_swallowed, job, WAIT_S)
            else:
                proxy.hold(store.write_word)
                engine.wait_for(proxy.holds.is_set, job, WAIT_S)
                job = _kill(kind, chance, job, store, proxy, start, folder)
            job.wait_event("checkpoint_completed", after=mark if kind in KINDS[2:5] else 0, timeout=WAIT_S)
            now = dict(store.counts())
            if kind != "rewind":
                assert not [user for user, count in counts.items() if now[user] < count], "a count went back"
            counts = now
        # Rows of a commit that was abandoned by going back stay until their keys are written again.
        highest = max(store.numbers())
        engine.wait_for(lambda: sum(store.counts().values()) > highest + AHEAD, job, WAIT_S)
        job.kill_group(signal.SIGINT)
        assert job.wait(WAIT_S) == 0, job.story()
    numbers = store.numbers()
    for split in range(SPLITS):
        made = [n for n in numbers if n % SPLITS == split]
        assert made == list(range(split, split + SPLITS * len(made), SPLITS))
    assert dict(store.counts()) == Counter(f"u{n % USERS}" for n in numbers)


def _kill(
    kind: str,
    chance: random.Random,
    job: Any,
    store: StoreUnderTest,
    proxy: AnswerProxy,
    start: Any,
    folder: Path,
) -> Any:
    """One kill while a request is held; gives the job that goes on."""
    mark = job.mark
    match kind:
        case "driver and slots" | "rewind":
            job.kill_group()
            job.wait()
            proxy.let_go()
            kept = manifests(folder)[0]["checkpoint_id"]
            job = start("--from", str(kept)) if kind == "rewind" else start()
            job.wait_event("slots_started", timeout=WAIT_S)
        case "server":
            store.kill()
            proxy.let_go()
            store.start()
        case "slot":
            os.kill(chance.choice(job.slots()), signal.SIGKILL)
            proxy.let_go()
            job.wait_event("restarted", after=mark, timeout=WAIT_S)
        case _:
            os.kill(chance.choice(job.slots()), signal.SIGSTOP)
            proxy.let_go()
            job.wait_event("restarted", after=mark, timeout=WAIT_S)
    return job
