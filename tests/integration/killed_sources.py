"""A job that copies numbered messages from a source into files, killed again and again while they come."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

DRIVER, SLOT, SERVER = "driver and slots", "slot", "server"


class Producer:
    """Sends numbered messages on a thread until it is closed."""

    def __init__(
        self,
        connect: Callable[[], AbstractContextManager[Callable[[int], int]]],
        lost: tuple[type[Exception], ...] = (),
        pause_s: float = 0.0005,
    ) -> None:
        """`connect()` gives what sends the messages from a number on and says how many are confirmed. After
        one of the errors `lost` it is asked again, and what was not confirmed is sent again."""
        self._connect, self._lost, self._pause_s = connect, lost, pause_s
        self._over = threading.Event()
        self.sent = 0
        """How many are confirmed."""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.is_set():
            with suppress(*self._lost), self._connect() as send:
                while not self._over.wait(self._pause_s):
                    self.sent += send(self.sent)

    def close(self) -> None:
        self._over.set()
        self._thread.join()


def rows_in(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in folder.glob("out-*.jsonl") for line in path.read_text().splitlines()]


def seen(folder: Path) -> Counter[int]:
    """How often each number is there."""
    return Counter(row["n"] for row in rows_in(folder))


def run_with_kills(
    kinds: Sequence[str],
    start: Callable[[], Any],
    producer: Producer,
    engine: Any,
    folder: Path,
    *,
    restart_server: Callable[[], None] = lambda: None,
    before_kill: Callable[[random.Random], None] = lambda chance: None,
    is_done: Callable[[], bool] = lambda: True,
) -> Counter[int]:
    """Kill what each of the `kinds` says, each time after some more rows, while the producer sends; then let
    the job read all and end. Returns what is in the files of `folder`. `is_done()`: whether the server has
    its answers to what a killed job had and comes once more."""
    chance = random.Random(len(kinds))
    job = start()
    for kind in kinds:
        before, mark = seen(folder).total(), job.mark
        wanted = before + chance.randrange(200)
        engine.wait_for(lambda wanted=wanted: seen(folder).total() > wanted, job, 180)
        before_kill(chance)
        if kind == DRIVER:
            job.kill_group()
            job.wait()
            job = start()
        elif kind == SERVER:
            restart_server()
        else:
            os.kill(chance.choice(job.slots()), signal.SIGKILL)
            job.wait_event("restarted", after=mark, timeout=360)
    producer.close()
    engine.wait_for(lambda: len(seen(folder)) >= producer.sent and is_done(), job, 180)
    job.wait_event("slots_started")  # all rows may be there before the last process listens to signals
    job.send(signal.SIGTERM)
    assert job.wait(240) == 0, job.story()
    return seen(folder)
