"""Spark's own Python modules from the installed package, not from the archives that Spark puts before it.

In the path of each Python process that Spark starts are archives of its sources first. Where PySpark is an
installed package, the same sources lie around them, compiled. This is imported before anything of Spark's,
in many processes, so it imports little.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import PathFinder
from pathlib import Path


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
    """The folder site-packages for site-packages/pyspark/python/lib/pyspark.zip and the like."""
    package = next((each for each in archive.parents if each.name == "pyspark"), None)
    if archive.suffix not in (".zip", ".jar") or package is None or not (package / "worker.py").exists():
        return None
    return str(package.parent)


def use_packages() -> None:
    """Take the packages instead of the archives, before the first import of pyspark. Does nothing if PySpark
    or py4j are not installed as packages, or if another PySpark than that of the archives comes first in the
    path: its version may be another."""
    path = without_archives(sys.path)
    spark, py4j = PathFinder.find_spec("pyspark", path), PathFinder.find_spec("py4j", path)
    if spark is None or py4j is None or spark.origin is None:
        return
    folder = str(Path(spark.origin).parents[1])
    if folder in map(_installed_beside, map(Path, sys.path)):
        for entry in set(sys.path) - set(path):
            sys.path_importer_cache.pop(entry, None)
        sys.path[:] = path
