"""The process that forks the Python workers of Spark's tasks, with what our source and sink need imported.

Optional: `spark.python.daemon.module=onceflow.structured_streaming.daemon` when the session is started.
Without it each worker imports pyarrow, polars and librdkafka anew, and numba with the kernels (5 CPU-seconds
on a slow core). Spark plans and commits in processes of another daemon, which is always its own. Nothing
here starts a thread: threads do not survive a fork.
"""

from __future__ import annotations

import gc
import importlib
import sys
from collections.abc import Sequence
from importlib.machinery import PathFinder
from pathlib import Path

from onceflow.structured_streaming.worker_garbage import spare_imports

PRELOADED = (
    "pyspark.worker",
    "pyspark.sql.pandas.types",
    "pyarrow.compute",
    "onceflow.connectors.formats.avro",
    "onceflow.connectors.formats.json",
    "onceflow.structured_streaming.data_source",
    "onceflow.structured_streaming.sink",
    "onceflow.structured_streaming.source",
)


def without_archives(path: Sequence[str]) -> list[str]:
    """A Python path with the folder of the installed package `pyspark` instead of Spark's archives in it.

    Spark puts them first for its workers: a zip of its Python sources, a zip of py4j's and a jar. They have
    no compiled files, so what comes from there is compiled in each process, and each new worker reads
    their directories again, thousands of names. The same sources lie beside them as a package.
    """
    archives = {entry: _installed_beside(Path(entry)) for entry in path}
    kept = [entry for entry in path if archives[entry] is None]
    return [*kept, *sorted({folder for folder in archives.values() if folder} - set(kept))]


def _installed_beside(archive: Path) -> str | None:
    """For site-packages/pyspark/python/lib/pyspark.zip and the like: site-packages."""
    package = next((each for each in archive.parents if each.name == "pyspark"), None)
    if archive.suffix not in (".zip", ".jar") or package is None or not (package / "worker.py").exists():
        return None
    return str(package.parent)


def use_packages() -> None:
    """Before the first import of pyspark. Nothing, if PySpark or py4j are not installed as packages."""
    path = without_archives(sys.path)
    if PathFinder.find_spec("pyspark", path) and PathFinder.find_spec("py4j", path):
        for entry in set(sys.path) - set(path):
            sys.path_importer_cache.pop(entry, None)
        sys.path[:] = path


def preload() -> None:
    """Import what workers need, and load the kernels."""
    from onceflow.runtime.kernels.preparation import prepare_kernels

    for name in PRELOADED:
        importlib.import_module(name)
    prepare_kernels()
    gc.collect()
    spare_imports()


if __name__ == "__main__":
    use_packages()
    preload()
    from pyspark.daemon import manager

    manager()
