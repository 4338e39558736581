"""Who does the work of kernels in a process: one choice, for all of its parts and threads."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

from onceflow.runtime.kernels.ops import COMPILED, ENVIRONMENT_VARIABLE, PLAIN, ops, ops_here, using

PROGRAM = """
import sys
from onceflow.runtime.kernels.ops import ops
print(ops(), "numba" in sys.modules)
"""


def test_the_environment_turns_kernels_off() -> None:
    assert _run(PROGRAM, {ENVIRONMENT_VARIABLE: "off"}) == "plain False"


HIDDEN = "import sys; sys.modules['numba'] = sys.modules['llvmlite'] = None"


def test_without_numba_there_are_no_kernels() -> None:
    assert _run(HIDDEN + PROGRAM, {}).startswith("plain")


def test_without_numba_all_that_users_import_works() -> None:
    """Where there is no numba for a platform, the simple code does all."""
    program = """
import pyarrow as pa
from confluent_kafka import Consumer
from onceflow.connectors.formats import Json
from onceflow.connectors.kafka.fetch.direct_reading import DirectReading
from onceflow.connectors.kafka import KafkaSource
from onceflow.connectors.kafka.fetched import Wanted
from onceflow.connectors.kafka.fetch.choose import open_fetcher
from onceflow.connectors.kafka.transactions.librdkafka_client import LibrdkafkaClient
from onceflow.connectors.kafka.produce.partitioner import partition_of_key
from onceflow.connectors.kafka.reader_splits import SplitTable
from onceflow.sinks.kafka import KafkaSink
schema = pa.schema([pa.field("n", pa.int64(), False)])
rows = Json(schema).decoder().decode([b'{"n":1}'] * 300).batch
assert Json().encoder(schema).encode(rows)[0].as_py() == b'{"n":1}'
settings = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0}
fetcher = open_fetcher(Consumer(settings), settings, SplitTable(), Wanted(), 10, direct=DirectReading())
print(type(fetcher).__name__, rows.num_rows, partition_of_key(pa.array(["a"]), 9))
"""
    assert _run(f"{HIDDEN}\n{program}", {}).startswith("MessageFetcher 300 [")


def test_others_are_used_meanwhile_by_all_threads_and_then_those_before() -> None:
    before, seen = ops(), []
    with using(PLAIN):
        thread = threading.Thread(target=lambda: seen.append(ops()))
        thread.start()
        thread.join()
        for chosen in ops_here():
            with using(chosen):
                assert ops() is chosen
            assert ops() is PLAIN
    assert seen == [PLAIN]
    assert ops() is before


def test_a_process_that_works_plainly_offers_no_kernels() -> None:
    assert set(ops_here()) == ({PLAIN, COMPILED} if ops().are_compiled else {PLAIN})
    with using(PLAIN):
        assert ops_here() == (PLAIN,)


def _run(program: str, environment: dict[str, str]) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env={**os.environ, **environment}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
