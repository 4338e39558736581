"""The daemon that forks Spark's workers: what it takes from where, and what its forks are spared."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from onceflow.structured_streaming.daemon import without_archives


def installed_pyspark(folder: Path) -> Path:
    package = folder / "site-packages" / "pyspark"
    for inside in ("python/lib", "jars"):
        (package / inside).mkdir(parents=True)
    (package / "worker.py").touch()
    return package


def test_archives_give_way_to_the_package_they_lie_in(tmp_path: Path) -> None:
    package = installed_pyspark(tmp_path)
    archives = [str(package / "python/lib/pyspark.zip"), str(package / "jars/spark-core.jar")]
    packages = str(package.parent)
    assert without_archives([*archives, "/lib/python3", packages]) == ["/lib/python3", packages]


def test_the_package_goes_behind_the_standard_library_where_it_is_not_in_the_path(tmp_path: Path) -> None:
    package = installed_pyspark(tmp_path)
    archive = str(package / "python/lib/pyspark.zip")
    assert without_archives([archive, "/lib/python3"]) == ["/lib/python3", str(package.parent)]


def test_archives_without_a_package_stay() -> None:
    path = ["/opt/spark/python/lib/pyspark.zip", "/job/dependencies.zip", "/lib/python3"]
    assert without_archives(path) == path


def test_the_daemon_has_all_imported_and_spared_before_it_forks() -> None:
    said = subprocess.run(
        [
            sys.executable,
            "-c",
            "import gc, sys, threading\n"
            "from onceflow.structured_streaming import daemon\n"
            "daemon.preload()\n"
            "print(gc.get_freeze_count(), threading.active_count(), 'pyspark.worker' in sys.modules)",
        ],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert int(said[0]) > 100_000
    assert said[1:] == ["1", "True"]
