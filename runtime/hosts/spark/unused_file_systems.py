"""File systems that nobody uses any more, and that fsspec still keeps, before a process forks.

fsspec empties its caches in each child that a process forks. A file system that only the cache keeps ends
right there, and one of those with threads of their own (HDFS, Azure) then waits for a thread that a fork does
not copy: the child never becomes the program that it was forked for. PySpark forks so to start the JVM.
"""

from __future__ import annotations

import fsspec


def let_go_of_unused_file_systems() -> None:
    """Called right before the JVM is started. Those that somebody still uses go on as they are."""
    for file_system in list(fsspec.registry.values()):
        file_system.clear_instance_cache()
