"""Scratch folders: the files of a process that was killed go with the next folder that is made."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from onceflow.runtime.state.rocks.scratch import ScratchFolder

_MAKE = """
import sys, time
from pathlib import Path
from onceflow.runtime.state.rocks.scratch import ScratchFolder
folder = ScratchFolder(Path(sys.argv[1]))
(folder.path / "rows").write_text("of nobody")
print(folder.path, flush=True)
sys.stdin.read()
"""


def test_what_a_killed_process_left_is_removed_and_what_is_in_use_stays(tmp_path: Path) -> None:
    mine = ScratchFolder(tmp_path)
    with subprocess.Popen(
        [sys.executable, "-c", _MAKE, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        other = Path(process.stdout.readline().strip())
        ScratchFolder(tmp_path).close()
        assert (other / "rows").exists(), "its process lives"
        process.send_signal(signal.SIGKILL)
    ScratchFolder(tmp_path).close()
    assert not other.exists()
    assert mine.path.exists()
    mine.close()
    assert list(mine.path.parent.iterdir()) == []
    mine.close()  # once more is nothing


def test_half_made_folders_are_removed_when_they_are_old(tmp_path: Path) -> None:
    ScratchFolder(tmp_path).close()
    [room] = tmp_path.iterdir()
    young, old = room / "new-young", room / "new-old"
    for folder in (young, old):
        folder.mkdir()
    long_ago = time.time() - 7_200
    os.utime(old, (long_ago, long_ago))
    ScratchFolder(tmp_path).close()
    assert list(room.iterdir()) == [young]


def test_nobody_else_reads_it(tmp_path: Path) -> None:
    folder = ScratchFolder(tmp_path)
    assert folder.path.parent.stat().st_mode & 0o077 == 0
    folder.close()
