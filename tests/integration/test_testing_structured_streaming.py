"""The tests that docs/testing-jobs.md has for a Structured Streaming pipeline, as a reader runs them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from onceflow.connectors.kafka.embedded import EmbeddedKafka

EXAMPLE = Path(__file__).resolve().parents[2] / "docs" / "examples" / "testing_structured_streaming.py"

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


def test_they_pass_in_a_folder_that_has_nothing_else(tmp_path: Path, broker: EmbeddedKafka) -> None:
    shutil.copy(EXAMPLE, tmp_path / "test_totals.py")
    options = ["-q", "-p", "no:cacheprovider", "--onceflow-bootstrap-servers", broker.bootstrap_servers]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", *options],
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if name != "PYSPARK_PYTHON"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert "3 passed" in run.stdout, run.stdout + run.stderr
