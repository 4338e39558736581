"""A little package of somebody else's, with connectors: built and installed by pip, into a folder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "onceflow-shelf"
version = "1.2.3"

[project.optional-dependencies]
old = ["shelf-client>=2"]

[project.entry-points."onceflow.sources"]
shelf = "onceflow_shelf:Shelf"

[project.entry-points."onceflow.sinks"]
shelf = "onceflow_shelf:sink"
shelf-old = "onceflow_shelf.old:Sink"
shelf-older = "onceflow_shelf.old:Sink [old]"
shelf-wrong = "onceflow_shelf:Shelf"

[project.entry-points."onceflow.formats"]
raw = "onceflow_shelf:Shelf"
"""
MODULE = """
from onceflow.connectors.collections.given_records import records_source
from onceflow.sinks.transactional import TransactionalSink


def Shelf(end: int, start: int = 0):
    return records_source([{"n": n} for n in range(start, end)], None)


class Store:
    def check(self, schema, uid): ...
    def open_target(self, context): ...


def sink(path: str, **options):
    return TransactionalSink(Store())
"""


def install(folder: Path) -> Path:
    """Make the package, and install it; the folder that has to be in sys.path."""
    package, target = folder / "project", folder / "site"
    (package / "onceflow_shelf").mkdir(parents=True)
    (package / "pyproject.toml").write_text(PROJECT)
    (package / "onceflow_shelf" / "__init__.py").write_text(MODULE)
    (package / "onceflow_shelf" / "old.py").write_text("import shelf_client_that_is_not_there\n")
    options = ["--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--target", str(target)]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, str(package)], check=True)
    return target
