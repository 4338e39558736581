"""A slot looks whether the checkpoint folder is the one in which the driver writes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from onceflow import Job
from onceflow.runtime.api.run_options import run_options
from onceflow.runtime.checkpoint.events import Outcome
from onceflow.runtime.checkpoint.local_store import LocalStore
from onceflow.runtime.checkpoint.manifest import AttemptEntry
from onceflow.runtime.checkpoint.shared_folder import check_is_shared
from onceflow.runtime.clock import SystemClock
from onceflow.runtime.driver.driver import JobDriver
from onceflow.runtime.errors import Fatal, Unavailable
from onceflow.runtime.hosts.local import LocalLauncher
from onceflow.runtime.report import Silent
from onceflow.runtime.slot.process import SlotLaunch
from onceflow.testing.collecting_sink import CollectingSink, SinkRows
from onceflow.testing.script import Script
from onceflow.testing.scripted_source import ScriptedSource
from tests.deployment_page import said

ENTRY = AttemptEntry("log/0000000001.json", b"of this driver")
WHAT = "a checkpoint folder that is not shared"


def test_the_drivers_folder_is_taken(tmp_path: Path) -> None:
    LocalStore(str(tmp_path)).create(*ENTRY)
    check_is_shared(LocalStore(str(tmp_path)), ENTRY, "worker")


@pytest.mark.parametrize("folder", ["", "none", "file/none"])
def test_a_folder_without_the_drivers_entry_is_refused_and_left_as_it_was(
    folder: str, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(Fatal) as refused:
        check_is_shared(LocalStore(str(tmp_path / folder)), ENTRY, "worker")
    assert said(WHAT).fullmatch(str(refused.value)), str(refused.value)
    assert sorted(tmp_path.rglob("*")) == before


def test_an_older_copy_of_the_folder_is_refused(tmp_path: Path) -> None:
    LocalStore(str(tmp_path)).create(ENTRY.path, b"of an earlier one")
    with pytest.raises(Fatal, match=r"0000000001\.json has another content there"):
        check_is_shared(LocalStore(str(tmp_path)), ENTRY, "worker")


def test_an_entry_that_can_not_be_read_is_no_proof_of_either(tmp_path: Path) -> None:
    (tmp_path / ENTRY.path).mkdir(parents=True)
    with pytest.raises(Unavailable, match="on worker can't be read"):
        check_is_shared(LocalStore(str(tmp_path)), ENTRY, "worker")


class Elsewhere(LocalLauncher):
    """Its slots have a folder of their own under the path of the driver's."""

    def __init__(self, folder: Path) -> None:
        super().__init__(1)
        self._folder = folder

    def launch(self, launch: SlotLaunch, *how: Any) -> Any:
        return super().launch(replace(launch, checkpoint_url=str(self._folder)), *how)


def test_a_job_whose_slots_have_another_folder_ends_at_once_and_reads_nothing(tmp_path: Path) -> None:
    job = Job("job")
    schema = pa.schema([pa.field("n", pa.int64(), nullable=False)])
    job.source(ScriptedSource(Script("src", schema, None, {"all": []}))).sink_to(
        CollectingSink(SinkRows("out", schema))
    )
    options = run_options(str(tmp_path / "drivers"), master="threads[1]")
    launcher = Elsewhere(tmp_path / "slots")
    result = JobDriver(job.build(), options, launcher, SystemClock(), Silent()).run()
    launcher.close()
    assert result.outcome is Outcome.FAILED
    assert said(WHAT).fullmatch(result.reason), result.reason
    assert not (tmp_path / "slots").exists()
