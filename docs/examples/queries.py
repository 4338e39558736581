"""A server of a job's state, and a client that asks it."""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass

from onceflow import Ctx, Job, KeyedProcess, StateClient, ValueState


@dataclass(frozen=True)
class Reading:
    sensor: str
    celsius: float


class Highest(KeyedProcess[str, Reading, Reading]):
    highest = ValueState("highest", float)

    def process(self, record: Reading, ctx: Ctx) -> Iterator[Reading]:
        self.highest.set(max(record.celsius, self.highest.get(-273.15)))
        yield record


with tempfile.TemporaryDirectory() as folder:
    job = Job("sensors")
    readings = job.from_elements(Reading("roof", 17.5), Reading("roof", 21.0))
    readings.key_by("sensor").process(Highest(), uid="highest").collect()
    job.run(folder, master="threads[1]")

    main = "from onceflow.cli.app import main; main()"
    command = [sys.executable, "-u", "-c", main, "serve-state", folder]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        token = server.stdout.readline().split()[1]
        client = StateClient(url, token)
        answer = client.get("highest", "highest", "roof")
        assert answer["rows"] == [{"sensor": "roof", "value": 21.0}]
        client.close()
        server.terminate()
