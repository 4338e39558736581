"""A slot looks whether the checkpoint folder is the one in which the driver writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from onceflow.runtime.checkpoint.local_store import LocalStore
from onceflow.runtime.checkpoint.shared_folder import AttemptEntry, check_is_shared
from onceflow.runtime.errors import Fatal, Unavailable
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
