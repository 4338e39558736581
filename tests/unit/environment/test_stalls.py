"""What a process that stands still in C code says of where it is, without Python's lock."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from onceflow.runtime.environment.stalls import Place, StallWatch, find_place, read_stacks

STACKS = """Timeout (0:00:03)!
Thread 0x00007f0d1 (most recent call first):
  File "/lib/threading.py", line 324 in wait
  File "/site/onceflow/runtime/slot/process.py", line 241 in _heartbeat

Thread 0x00007f0d2 (most recent call first):
  File "/lib/re/__init__.py", line 166 in match
  File "/jobs 2/totals.py", line 88 in check
  File "/site/onceflow/runtime/operators/stateless.py", line 238 in call_each
  File "/site/onceflow/runtime/slot/task.py", line 90 in step
  File "/site/onceflow/runtime/slot/slot.py", line 120 in step
  File "/site/onceflow/runtime/slot/process.py", line 215 in _loop
  File "/site/onceflow/runtime/slot/process.py", line 190 in run
"""


def test_the_place_is_the_line_of_the_users_function_on_the_slots_thread() -> None:
    place = find_place(STACKS)
    assert place == Place("/jobs 2/totals.py", 88, "check")
    assert str(place) == "/jobs 2/totals.py:88 in check"
    elsewhere = find_place(STACKS.replace("/jobs 2", "/copy"))
    assert elsewhere is not None
    assert elsewhere.fingerprint == place.fingerprint


def test_the_place_is_ours_if_our_code_has_called_nothing() -> None:
    ours = "\n".join(line for line in STACKS.splitlines() if "match" not in line and "check" not in line)
    assert find_place(ours) == Place("/site/onceflow/runtime/operators/stateless.py", 238, "call_each")


@pytest.mark.parametrize("stacks", ["", "Timeout (0:00:03)!\n", STACKS.replace("_loop", "main"), "x" * 1000])
def test_stacks_that_do_not_tell_are_no_place(stacks: str) -> None:
    assert find_place(stacks) is None


HANGS = """
import re
from onceflow.runtime.environment.stalls import StallWatch

def check():
    re.match(r"(a+)+$", "a" * 64 + "b")

watch = StallWatch(400, has_process={has_process}, is_near=True)
print(watch.fd, flush=True)
watch.put_off()
check()
"""


def hangs(has_process: bool) -> subprocess.Popen[str]:
    program = HANGS.format(has_process=has_process)
    return subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="files in memory are Linux's")
def test_a_process_that_stands_still_is_read_from_outside_and_goes_on_standing_there() -> None:
    with hangs(has_process=True) as process:
        try:
            assert process.stdout is not None
            fd, deadline = int(process.stdout.readline()), time.monotonic() + 80
            while "in check" not in (stacks := read_stacks(process.pid, fd)):
                assert time.monotonic() < deadline, stacks
                with pytest.raises(subprocess.TimeoutExpired):
                    process.wait(0.05)
            assert read_stacks(process.pid, 2) == "", "another file"
        finally:
            process.kill()
    assert read_stacks(process.pid, fd) == "", "it is gone"


def test_without_a_process_of_its_own_the_process_says_where_it_is_and_ends() -> None:
    with hangs(has_process=False) as process:
        _, said = process.communicate(timeout=80)
    assert process.returncode == 1
    assert "in check" in said


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="files in memory are Linux's")
def test_what_was_written_while_python_was_slow_is_gone_when_it_goes_on() -> None:
    watch = StallWatch(20, has_process=True, is_near=True)
    assert watch.fd is not None
    try:
        for _ in range(3):
            watch.put_off()
            deadline = time.monotonic() + 80
            while not (stacks := read_stacks(os.getpid(), watch.fd)).endswith("\n"):
                assert time.monotonic() < deadline
            assert stacks.startswith("Timeout")
            assert stacks.count("Timeout") == 1
    finally:
        watch.close()
    watch.put_off()
    watch.close()


def test_a_driver_elsewhere_is_told_on_standard_error() -> None:
    assert StallWatch(20, has_process=True, is_near=False).fd is None
