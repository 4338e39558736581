"""A checkpoint and a savepoint that an earlier onceflow wrote are restored, to the exact results."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from onceflow.runtime.checkpoint.log_view import read_log
from onceflow.runtime.checkpoint.savepoints.folder import savepoint_at
from onceflow.runtime.checkpoint.store_url import open_store

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def golden() -> ModuleType:
    spec = importlib.util.spec_from_file_location("golden_job", HERE / "golden_job.py")
    assert spec is not None
    assert spec.loader is not None
    sys.modules["golden_job"] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def results(run: Any) -> dict[str, Counter[str]]:
    assert run.result.outcome.value == "stopped", run.result
    return {sink: Counter(map(repr, rows)) for sink, rows in run.visible.items()}


@pytest.fixture(scope="module")
def expected(
    golden: ModuleType, in_folder: Any, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Counter[str]]:
    """What a run without interruption gives, less what was committed before the golden checkpoint."""
    return results_since(golden.COMMITTED, golden, in_folder, tmp_path_factory.mktemp("uninterrupted"))


def results_since(n: int, golden: ModuleType, in_folder: Any, path: Path) -> dict[str, Counter[str]]:
    """What a run without interruption gives, less what the first n records give."""
    committed = results(in_folder(path / "committed").run(golden.build, *golden.rows(0, n)))
    whole = results(in_folder(path / "whole").run(golden.build, *golden.rows(0, golden.ALL)))
    assert not any(committed[sink] - whole[sink] for sink in whole)
    return {sink: rows - committed[sink] for sink, rows in whole.items()}


@pytest.mark.parametrize("slots", [1, 2, 3])
def test_a_golden_checkpoint_goes_on_exactly(
    slots: int, golden: ModuleType, folder: Any, expected: dict[str, Counter[str]]
) -> None:
    shutil.copytree(HERE / "golden_3", folder.path)
    [(_, manifest)] = read_log(open_store(str(folder.path))).completed()
    assert manifest.format_version == 3
    assert len({path for path in manifest.paths() if path.startswith("state/")}) == 12
    folder.rows += golden.rows(0, golden.PROMISED)
    run = folder.run(golden.build, *golden.rows(golden.PROMISED, golden.ALL), slots=slots)
    assert not run.events.named("state_changed")
    assert run.result.late_records == 0
    found = results(run)
    for sink, rows in expected.items():
        assert sum(rows.values()) > 150
        assert (rows - found[sink], found[sink] - rows) == (Counter(), Counter()), (
            f"{sink}: missing, and not expected"
        )


@pytest.mark.parametrize(("version", "files", "groups"), [(4, 12, 8), (5, 21, 8), (4, 12, 3), (5, 21, 21)])
def test_a_golden_savepoint_starts_a_job_exactly(
    version: int, files: int, groups: int, golden: ModuleType, folder: Any, in_folder: Any, tmp_path: Path
) -> None:
    """What it promised was committed when it was taken. Since 5 a table may be in several files. It has 8 key
    groups; the job that is started may have others."""
    place = str(HERE / f"golden_savepoint_{version}")
    taken = savepoint_at(place).read()
    versions = taken.format_version, taken.manifest.format_version
    assert (*versions, taken.is_pinned) == (version, version, False)
    assert len(taken.manifest.paths()) == files
    folder.rows += golden.rows(0, golden.PROMISED)
    later = golden.rows(golden.PROMISED, golden.ALL)
    run = folder.run(golden.build, *later, slots=3, start_from=place, max_parallelism=groups)
    assert not run.events.named("state_changed")
    assert results(run) == results_since(golden.PROMISED, golden, in_folder, tmp_path)
