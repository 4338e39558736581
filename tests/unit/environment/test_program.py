"""The part of a program's folder that is sent to the slots."""

from __future__ import annotations

import importlib
import os
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

import onceflow.runtime.environment.program as of_programs
from onceflow.runtime.environment.program import archive_modules, import_folder
from onceflow.runtime.errors import OptionError


def write(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("")


def module(name: str, file: Path) -> ModuleType:
    made = ModuleType(name)
    made.__file__ = str(file)
    return made


def test_modules_and_whole_packages_are_sent_and_nothing_else(tmp_path: Path) -> None:
    write(tmp_path, "job.py", "near.py", "data.csv", ".env", "notes/readme.md", "onceflow/__init__.py")
    write(tmp_path, "shop/__init__.py", "shop/sub/model.json", "shop/__pycache__/a.pyc", "shop/.git/config")
    archive = tmp_path / "modules.zip"
    assert archive_modules(tmp_path, archive)
    with zipfile.ZipFile(archive) as found:
        assert found.namelist() == ["job.py", "near.py", "shop/__init__.py", "shop/sub/model.json"]


def test_a_package_without_an_init_file_is_sent_if_the_program_has_imported_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "space_of_names/part.py", "other_space/part.py")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("space_of_names.part")
    try:
        archive_modules(tmp_path, tmp_path / "modules.zip")
    finally:
        del sys.modules["space_of_names.part"], sys.modules["space_of_names"]
    with zipfile.ZipFile(tmp_path / "modules.zip") as found:
        assert found.namelist() == ["space_of_names/part.py"]


def test_what_the_driver_can_not_read_is_left_out(tmp_path: Path) -> None:
    """Such things lie in /tmp, beside a program: they belong to others."""
    write(tmp_path, "job.py")
    (tmp_path / "gone.py").symlink_to(tmp_path / "not-there")
    (tmp_path / "closed").symlink_to(tmp_path / "closed")
    os.mkfifo(tmp_path / "pipe.py")
    archive_modules(tmp_path, tmp_path / "modules.zip")
    with zipfile.ZipFile(tmp_path / "modules.zip") as found:
        assert found.namelist() == ["job.py"]


def test_nothing_to_send_is_no_archive(tmp_path: Path) -> None:
    write(tmp_path, "data.csv")
    assert not archive_modules(tmp_path, tmp_path / "modules.zip")
    assert not (tmp_path / "modules.zip").exists()


def test_a_folder_that_is_hardly_a_programs_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "shop/__init__.py")
    with (tmp_path / "shop" / "weights.bin").open("wb") as file:
        file.truncate(of_programs.BYTES_MAX + 1)
    with pytest.raises(OptionError, match="are more than 256 MiB, and slots get a copy of them"):
        archive_modules(tmp_path, tmp_path / "modules.zip")


def test_the_folder_is_the_one_in_which_the_name_is_found(tmp_path: Path) -> None:
    job, package = tmp_path / "shop" / "jobs.py", tmp_path / "shop" / "__init__.py"
    assert import_folder(module("onceflow_job_jobs", job)) == tmp_path / "shop"
    assert import_folder(module("shop.jobs", job), "shop.jobs") == tmp_path
    assert import_folder(module("shop", package), "shop") == tmp_path
    assert import_folder(module("__main__", tmp_path / "shop" / "__main__.py"), "shop.__main__") == tmp_path


def test_what_is_installed_and_what_is_no_file_have_none(tmp_path: Path) -> None:
    assert import_folder(module("shop", tmp_path / "site-packages" / "shop.py"), "shop") is None
    assert import_folder(ModuleType("__main__")) is None
