"""A file system that only fsspec's cache keeps is gone before a process forks; one that is used stays."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref

import fsspec
from fsspec.implementations.memory import MemoryFileSystem

from onceflow.runtime.hosts.spark.unused_file_systems import let_go_of_unused_file_systems


class Waiting(MemoryFileSystem):
    """Stands for one with threads of its own, which its end waits for."""

    protocol = "onceflow-waiting"


def test_only_those_that_nobody_uses_go() -> None:
    fsspec.register_implementation("onceflow-waiting", Waiting, clobber=True)
    used, unused = fsspec.filesystem("onceflow-waiting", n=1), fsspec.filesystem("onceflow-waiting", n=2)
    seen = weakref.ref(unused)
    del unused
    gc.collect()
    assert seen() is not None, "fsspec keeps it"
    let_go_of_unused_file_systems()
    gc.collect()
    assert seen() is None
    used.pipe("/onceflow-waiting", b"1")
    assert used.cat("/onceflow-waiting") == b"1"


FORKS = """
import os, subprocess, sys, threading
import fsspec
from fsspec.implementations.memory import MemoryFileSystem
from onceflow.runtime.hosts.spark.unused_file_systems import let_go_of_unused_file_systems

owner = os.getpid()

class Waiting(MemoryFileSystem):
    protocol = "onceflow-waiting"
    def __del__(self):
        if os.getpid() != owner:
            threading.Event().wait()  # for a thread that is not there

fsspec.register_implementation("onceflow-waiting", Waiting)
fsspec.filesystem("onceflow-waiting")
if "let-go" in sys.argv:
    let_go_of_unused_file_systems()
child = os.fork()
if child == 0:
    os._exit(0)
os.waitpid(child, 0)
"""


def test_a_forked_child_does_not_wait_for_threads_that_it_does_not_have() -> None:
    subprocess.run([sys.executable, "-c", FORKS, "let-go"], check=True, timeout=60)
