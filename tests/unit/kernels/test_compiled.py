"""Kernels: when they are used, that they are kept on disk, and what they can read."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import onceflow
from onceflow.runtime.kernels.compiled import ENVIRONMENT_VARIABLE, kernel, kernels_enabled, sources_of

PROGRAM = """
import sys
from onceflow.runtime.kernels.compiled import kernels_enabled
print(kernels_enabled(), "numba" in sys.modules)
"""


def test_the_environment_turns_kernels_off() -> None:
    assert _run(PROGRAM, {ENVIRONMENT_VARIABLE: "off"}) == "False False"


HIDDEN = "import sys; sys.modules['numba'] = sys.modules['llvmlite'] = None"


def test_without_numba_there_are_no_kernels() -> None:
    assert _run(HIDDEN + PROGRAM, {}).startswith("False")


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


def test_what_kernels_import_is_part_of_what_their_machine_code_is_kept_for() -> None:
    """Constants are compiled in: old machine code would read fields in another order where they are not."""
    root = Path(onceflow.__file__).parent
    found = {path.resolve() for path in sources_of(root / "connectors" / "kafka" / "records")}
    for name in ("records/section.py", "records/read_kernels.py", "fetched.py"):
        assert (root / "connectors" / "kafka" / name).resolve() in found
    assert (root / "runtime" / "kernels" / "varints.py").resolve() in found
    assert (root / "connectors" / "kafka" / "records" / "batch_writer.py").resolve() not in found


def test_kernels_call_only_kernels_beside_them_or_of_the_runtime() -> None:
    root = Path(onceflow.__file__).parent
    for path in [*root.glob("connectors/**/*_kernels.py"), *root.glob("runtime/**/*_kernels.py")]:
        home = "onceflow." + ".".join(path.parent.relative_to(root).parts)
        for name in re.findall(r"^from (onceflow[\w.]+_kernels) import", path.read_text(), re.MULTILINE):
            assert name.rpartition(".")[0] == home, f"{path.name}: what kernels share is in runtime.kernels"


@pytest.mark.skipif(not kernels_enabled(), reason="needs numba")
def test_a_kernel_reads_copies_and_calls_by_address() -> None:
    from onceflow.runtime.kernels.memory import call_with_pointer, copy_bytes, load_int64

    @kernel
    def sum_copy_and_call(source: int, target: int, count: int, function: int) -> int:
        total = 0
        for i in range(count):
            total += load_int64(source + 8 * i)
        copy_bytes(target, source, 8 * count)
        call_with_pointer(function, source)
        return total

    numbers = np.arange(1, 11)
    copy = np.zeros(10, np.int64)
    called: list[int | None] = []
    callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(called.append)
    function = ctypes.cast(callback, ctypes.c_void_p).value
    assert sum_copy_and_call(numbers.ctypes.data, copy.ctypes.data, 10, function) == 55
    assert copy.tolist() == numbers.tolist()
    assert called == [numbers.ctypes.data]


@pytest.mark.skipif(not kernels_enabled(), reason="needs numba")
def test_kernels_hand_arrays_to_each_other_without_counting_references() -> None:
    @kernel
    def put(target: npt.NDArray[np.int64], at: int, number: int) -> int:
        while number > 0:  # a loop: what has none is inlined, counts and all
            target[at] = number & 1
            number >>= 1
            at += 1
        return at

    @kernel
    def put_all(target: npt.NDArray[np.int64], numbers: npt.NDArray[np.int64]) -> int:
        at = 0
        for number in numbers:
            at = put(target, at, number)
        return at

    target = np.zeros(8, np.int64)
    assert put_all(target, np.array([5, 2])) == 5
    assert target.tolist() == [1, 0, 1, 0, 1, 0, 0, 0]
    machine_code: Any = put_all
    assert not [name for name in ("NRT_incref", "NRT_decref") if name in str(machine_code.inspect_asm())]


@pytest.mark.skipif(not kernels_enabled(), reason="needs numba")
def test_a_kernel_that_makes_an_array_is_refused() -> None:
    from numba.core.errors import NumbaError

    @kernel
    def make(count: int) -> int:
        made = np.empty(count, np.int64)
        made[0] = count
        return int(made[0])

    with pytest.raises(NumbaError, match=r"np\.empty|function empty"):
        make(3)


def _run(program: str, environment: dict[str, str]) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env={**os.environ, **environment}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
