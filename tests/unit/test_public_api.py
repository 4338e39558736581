"""The names a user imports: light to import, typed, and enough to build a job with."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import onceflow

ROOT = Path(__file__).parents[2]
FACE = ROOT / "tests" / "typing" / "api.py"


def test_using_the_names_needs_no_spark() -> None:
    program = (
        "import sys, onceflow; [getattr(onceflow, name) for name in onceflow.__all__]; "
        "assert 'pyspark' not in sys.modules, 'pyspark was imported'"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


def test_every_public_name_is_there_and_no_other() -> None:
    assert sorted(onceflow._HOME) == sorted(onceflow.__all__)
    assert all(getattr(onceflow, name) is not None for name in onceflow.__all__)
    assert not hasattr(onceflow, "Jobb")


def test_the_face_type_checks() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "mypy", str(FACE)], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert run.returncode == 0, run.stdout


def test_the_job_of_the_typing_test_builds() -> None:
    spec = importlib.util.spec_from_file_location("onceflow_typing_api", FACE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["onceflow_typing_api"] = module
    spec.loader.exec_module(module)
    graph = module.build().build()
    assert [n.uid for n in graph.sources()] == ["readings"]
