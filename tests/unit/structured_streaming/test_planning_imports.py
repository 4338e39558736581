"""What a process that only plans imports: Spark starts one for each query, and each module costs it CPU."""

from __future__ import annotations

import subprocess
import sys

import pytest

FOR_TASKS = (
    "numba",
    "polars",
    "pyarrow.compute",
    "msgspec",
    "fsspec",
    "onceflow.connectors.kafka.source.reader",
)
PLAN = """
import sys
from onceflow.structured_streaming.data_source import OnceflowKafka

options = {"bootstrap_servers": "127.0.0.1:1", "subscribe": "events"}
source = OnceflowKafka(options)
reader = source.streamReader(source.schema())
print(*sorted(name for name in sys.modules if name in sys.argv))
"""


@pytest.mark.parametrize("reads", [False, True])
def test_a_reader_is_made_without_what_only_tasks_need(reads: bool) -> None:
    program = (
        PLAN.replace("print", "import onceflow.structured_streaming.source_tasks\nprint") if reads else PLAN
    )
    said = subprocess.run(
        [sys.executable, "-c", program, *FOR_TASKS], capture_output=True, text=True, check=True
    ).stdout.split()
    assert ("onceflow.connectors.kafka.source.reader" in said) is reads
    assert reads or said == []
