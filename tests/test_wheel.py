"""The wheel holds the whole tree, and works where nothing of this repository is."""

from __future__ import annotations

import email
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = {
    "connectors": "onceflow/connectors",
    "runtime": "onceflow/runtime",
    "sinks": "onceflow/sinks",
    "onceflow/cli": "onceflow/cli",
    "onceflow/structured_streaming": "onceflow/structured_streaming",
    "onceflow/testing": "onceflow/testing",
}
"""Folder of the tree -> where it is in the wheel."""

PACKAGE_DATA = {
    "onceflow/connectors/kafka/embedded/pins.json",
    "onceflow/runtime/hosts/spark/log4j2.properties",
    "onceflow/py.typed",
}


def run(*command: str | Path, cwd: Path, timeout: int = 120) -> str:
    """Standard output of a command, outside of the repository and of this environment."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy without the links, as from an unpacked source distribution."""
    copy = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy / name)
    for folder in FOLDERS:
        shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("__init__.py", "py.typed"):
        shutil.copy(ROOT / "onceflow" / name, copy / "onceflow" / name)
    built = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", built, cwd=copy)
    (path,) = built.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def clean_python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new environment with the wheel in it. Dependencies are borrowed from this one: its folder is on
    the path, its editable onceflow is not: .pth files are read in an environment's own folder only."""
    folder = tmp_path_factory.mktemp("clean")
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    purelib = Path(
        run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder).strip()
    )
    run(sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-deps", wheel, cwd=folder)
    (purelib / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


def tree_files() -> set[str]:
    """What the wheel has to hold, by its names there."""
    found = {"onceflow/__init__.py", "onceflow/py.typed"}
    for folder, inside in FOLDERS.items():
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                found.add(f"{inside}/{path.relative_to(ROOT / folder).as_posix()}")
    return found


def test_the_wheel_holds_the_tree_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as content:
        held = {name for name in content.namelist() if ".dist-info/" not in name}
    assert held == tree_files()
    assert held >= PACKAGE_DATA


def test_the_metadata_has_what_an_index_shows(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as content:
        (name,) = (name for name in content.namelist() if name.endswith(".dist-info/METADATA"))
        said = email.message_from_bytes(content.read(name))
        assert any(name.endswith("/licenses/LICENSE") for name in content.namelist())
    assert said["License-Expression"] == "Apache-2.0"
    assert said["Description-Content-Type"] == "text/markdown"
    assert "Typing :: Typed" in said.get_all("Classifier", [])
    addresses = dict(line.split(", ") for line in said.get_all("Project-URL", []))
    assert {"Repository", "Documentation", "Changelog", "Issues"} == addresses.keys()
    assert all(address.startswith(addresses["Repository"]) for address in addresses.values())
    assert said.get_all("Provides-Extra") == [
        "avro",
        "delta",
        "http",
        "iceberg",
        "postgres",
        "redis",
        "testing",
    ]


def test_the_installed_wheel_imports_from_where_it_was_installed(clean_python: Path) -> None:
    script = (
        "import onceflow; print(onceflow.__file__); [getattr(onceflow, name) for name in onceflow.__all__]"
    )
    found = run(clean_python, "-c", script, cwd=clean_python.parent)
    assert Path(found.strip()).is_relative_to(clean_python.parent.parent)


def test_the_installed_command_works(clean_python: Path) -> None:
    command = clean_python.parent / "onceflow"
    said = run(command, "--help", cwd=clean_python.parent)
    for name in ("run", "plan", "checkpoints", "broker", "verify", "stop"):
        assert name in said
    assert "--checkpoint-dir" in run(command, "run", "--help", cwd=clean_python.parent)


def test_package_data_is_found_in_the_installed_wheel(clean_python: Path) -> None:
    script = (
        "from importlib.resources import files;"
        "assert files('onceflow.runtime.hosts.spark').joinpath('log4j2.properties').is_file();"
        "from onceflow.connectors.kafka.embedded.jars import PINNED_VERSION; print(PINNED_VERSION)"
    )
    assert run(clean_python, "-c", script, cwd=clean_python.parent).strip()


@pytest.mark.soak
def test_the_wheel_installs_with_its_own_dependencies(wheel: Path, tmp_path: Path) -> None:
    """Everything anew from the package index: minutes, mostly PySpark. `make wheel` runs it."""
    venv.create(tmp_path, with_pip=False, symlinks=True)
    python = tmp_path / "bin" / "python"
    uv = shutil.which("uv")
    if uv:
        run(uv, "pip", "install", "-q", "--python", python, wheel, cwd=tmp_path, timeout=600)
    else:
        run(
            sys.executable, "-m", "pip", "--python", python, "install", "-q", wheel, cwd=tmp_path, timeout=600
        )
    run(python, "-c", "import onceflow; [getattr(onceflow, name) for name in onceflow.__all__]", cwd=tmp_path)
    assert "checkpoints" in run(tmp_path / "bin" / "onceflow", "--help", cwd=tmp_path)
