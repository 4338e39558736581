"""docs/tutorial.md as a newcomer follows it: each file, edit and command, in order, in one shell.

What a command prints has to be what the page shows. `…` on the page stands for anything.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from onceflow.connectors.kafka.embedded.ports import free_port

pytestmark = pytest.mark.kafka

PAGE = Path(__file__).parents[2] / "docs" / "tutorial.md"
PROJECT = "shop"
INSTALLING = ("python -m venv", "python -m pip install")
"""What the environment of the tests has behind it."""
GIVEN_UP_AFTER_S = 800
"""For the whole page, which takes half a minute on a quiet machine: only what hangs takes so long."""


class Shell:
    """One bash for all commands, so that `cd`, `&`, `$!` and `wait` mean what they mean to the reader."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self._said = folder / "said"
        self._bash = subprocess.Popen(
            ["bash"],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._watch = threading.Timer(GIVEN_UP_AFTER_S, self._bash.kill)
        self._watch.start()

    def run(self, command: str) -> str:
        """What it prints, standard error included."""
        assert self._bash.stdin is not None
        assert self._bash.stdout is not None
        self._bash.stdin.write(f"{{\n{command}\n}} > '{self._said}' 2>&1 < /dev/null\necho over\n")
        self._bash.stdin.flush()
        assert self._bash.stdout.readline() == "over\n", f"{command} did not end"
        return self._said.read_text()

    def close(self) -> None:
        self._watch.cancel()
        self._bash.communicate(timeout=120)


@contextmanager
def shell_with_its_own_broker(folder: Path) -> Iterator[tuple[Shell, int]]:
    """Ends what the page has left running, should it break off."""
    port = free_port()
    binaries = Path(sys.executable).parent
    environment = {
        **os.environ,
        "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}",
        "ONCEFLOW_BOOTSTRAP_SERVERS": f"127.0.0.1:{port}",
        "XDG_DATA_HOME": str(folder / "data"),
        "COLUMNS": "200",
    }
    shell = Shell(folder, environment)
    try:
        yield shell, port
    finally:
        shell.run(f"onceflow cancel checkpoints; onceflow broker stop --port {port}")
        shell.close()


def blocks() -> list[tuple[str, str, str]]:
    """Kind, title and text of each fenced block, in order."""
    found = re.findall(
        r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', PAGE.read_text(), re.MULTILINE | re.DOTALL
    )
    assert len(found) > 30
    return found


def test_the_tutorial_as_it_stands(tmp_path: Path) -> None:
    project, registry_port = tmp_path / PROJECT, free_port()
    with shell_with_its_own_broker(tmp_path) as (shell, port):
        for kind, title, text in blocks():
            if kind == "console":
                follow(shell, text, port, registry_port)
            elif kind == "diff":
                edit(project / title, text)
            elif title:
                (project / title).write_text(text)
            else:
                assert text in (project / "job.py").read_text(), "the page shows a part of the job"
            if (project / "job.py").exists():
                elsewhere(project / "job.py", port)


def follow(shell: Shell, block: str, port: int, registry_port: int) -> None:
    """Run the commands of a block, and compare what they print with the lines below them."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, shown = part.partition("\n")
        if command.startswith(INSTALLING):
            continue
        command = re.sub(r"^(onceflow broker (?:start|stop))", rf"\1 --port {port}", command)
        command = re.sub("--registry$", f"--registry --registry-port {registry_port}", command)
        said = shell.run(command.replace("8081", str(registry_port)))
        said = said.replace(str(port), "9092").replace(str(registry_port), "8081")
        assert is_shown(said, shown), f"$ {command}\n{said}\nis not what the page shows:\n{shown}"


def is_shown(said: str, shown: str) -> bool:
    """Whether the page shows it: spaces and what stands behind a dot of dots apart."""
    words = " ".join(shown.split())
    pattern = ".*".join(re.escape(piece.strip()).replace(r"\ ", r"\s+") for piece in words.split("…"))
    return re.fullmatch(rf"\s*{pattern}\s*", said, re.DOTALL) is not None


def edit(path: Path, diff: str) -> None:
    """Make the one change that a block of one `-` and one `+` line says."""
    old, new = (line[1:] for line in diff.splitlines())
    text = path.read_text()
    assert text.count(old) == 1, f"{old!r} is in {path.name} {text.count(old)} times"
    path.write_text(text.replace(old, new))


def elsewhere(job: Path, port: int) -> None:
    """The job speaks to the broker of the test."""
    job.write_text(job.read_text().replace('"localhost:9092"', f'"127.0.0.1:{port}"'))


@pytest.mark.parametrize(
    ("shown", "is_it"),
    [
        ("one two\n", True),
        ("one …\n", True),
        ("…\ntwo\n", True),
        ("one\n", False),
        ("two\n", False),
        ("", False),
    ],
)
def test_the_page_is_compared_with_what_is_said(shown: str, is_it: bool) -> None:
    assert is_shown("one\n  two\n", shown) is is_it
