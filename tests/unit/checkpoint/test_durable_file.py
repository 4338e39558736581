"""DurableFile: what was written is what is there, on and off the page cache, and failures are told."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from onceflow.runtime.checkpoint.durable_file import BLOCK_BYTES, DurableFile

SIZES = {
    "nothing": [],
    "less than a block": [10, 0, 1_000],
    "a block": [BLOCK_BYTES],
    "across blocks": [BLOCK_BYTES - 1, 2, 3 * BLOCK_BYTES, 5],
    "many at once": [40 * BLOCK_BYTES + 17],
    "many small ones": [9_999] * 500,
}


@pytest.mark.parametrize("block_bytes", [BLOCK_BYTES, 1_000_000])  # the second is refused by O_DIRECT
@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_the_file_has_what_was_written(tmp_path: Path, sizes: list[int], block_bytes: int) -> None:
    pieces = [os.urandom(size) for size in sizes]
    with DurableFile(tmp_path / "f", block_bytes) as file:
        for i, piece in enumerate(pieces):
            assert file.tell() == sum(sizes[:i])
            assert file.write(memoryview(piece) if i % 2 else piece) == len(piece)
    assert file.closed
    assert (tmp_path / "f").read_bytes() == b"".join(pieces)


def test_two_files_at_a_time_do_not_mix(tmp_path: Path) -> None:
    first, second = DurableFile(tmp_path / "1"), DurableFile(tmp_path / "2")
    for _ in range(20):
        first.write(b"1" * 700_000)
        second.write(b"2" * 900_000)
    second.close()
    first.close()
    assert (tmp_path / "1").read_bytes() == b"1" * 14_000_000
    assert (tmp_path / "2").read_bytes() == b"2" * 18_000_000


def test_a_file_that_is_there_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"old")
    with pytest.raises(FileExistsError):
        DurableFile(tmp_path / "f")
    assert (tmp_path / "f").read_bytes() == b"old"


def test_a_file_that_nobody_closes_is_let_go(tmp_path: Path) -> None:
    before = os.listdir("/proc/self/fd")
    for i in range(10):
        DurableFile(tmp_path / str(i)).write(b"x" * 3_000_000)
    with DurableFile(tmp_path / "last") as last:  # behind the others on the disk's thread
        last.write(b"x" * 3_000_000)
    assert len(os.listdir("/proc/self/fd")) <= len(before) + 1  # the one of the listing


FULL = """
import resource, signal, sys
from pathlib import Path
from onceflow.runtime.checkpoint.durable_file import DurableFile
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (3_500_000, resource.RLIM_INFINITY))
file = DurableFile(Path(sys.argv[1]))
told = []
for piece in [b"x" * int(size) for size in sys.argv[2:]]:
    try:
        file.write(piece)
    except OSError as error:
        told.append(error.errno)
try:
    file.close()
except OSError as error:
    told.append(error.errno)
print(file.closed, told)
"""


@pytest.mark.parametrize(
    "pieces", [["3600000"], ["3000000", "600000"], ["30000000"], ["9000000", "1", "9000000"], ["4194304"]]
)
def test_no_file_that_could_not_be_written_is_closed_well(tmp_path: Path, pieces: list[str]) -> None:
    """The disk is as good as full: no file may be longer than 3.5 MB."""
    command = [sys.executable, "-c", FULL, str(tmp_path / "f"), *pieces]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    closed, told = done.stdout.split(" ", 1)
    assert closed == "True"
    assert told.strip("[]\n").split(", ")[-1] == "27"  # EFBIG


FULL_FOR_A_WHILE = """
import resource, signal, sys, time
from pathlib import Path
from onceflow.runtime.checkpoint.durable_file import DurableFile
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (3_500_000, resource.RLIM_INFINITY))
file = DurableFile(Path(sys.argv[1]))
try:
    file.write(b"x" * 4_194_304)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        file.write(b"")
    print("written")
except OSError:
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
for again in (lambda: file.write(b"x"), file.close):
    try:
        again()
        print("went on")
    except OSError as error:
        print(error.errno)
"""


def test_a_file_with_a_hole_is_never_closed_well(tmp_path: Path) -> None:
    """The disk has room again, but a block is lost."""
    command = [sys.executable, "-c", FULL_FOR_A_WHILE, str(tmp_path / "f")]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.split() == ["27", "27"]


LARGE = """
import sys
from pathlib import Path
from onceflow.runtime.checkpoint.durable_file import BLOCK_BYTES, DurableFile

def most_kib():  # of this program: what getrusage tells has that of its parent in it
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0])

before = most_kib()
with DurableFile(Path(sys.argv[1])) as file:
    for _ in range(300):
        file.write(b"x" * BLOCK_BYTES)
print((most_kib() - before) // 1024)
"""


def test_a_large_file_takes_a_few_blocks_of_memory(tmp_path: Path) -> None:
    command = [sys.executable, "-c", LARGE, str(tmp_path / "f")]
    megabytes = int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert megabytes < 60, "of 300"
