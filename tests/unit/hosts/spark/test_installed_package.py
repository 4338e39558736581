"""Spark's archives give way to the package they lie in; in the daemon of jobs too."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from onceflow.runtime.hosts.spark.class_archive import spark_home
from onceflow.runtime.hosts.spark.installed_package import without_archives


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


def test_the_daemon_of_jobs_imports_nothing_from_the_archives() -> None:
    home = spark_home()
    assert home is not None
    archive = str(home / "python" / "lib" / "pyspark.zip")
    done = subprocess.run(
        [sys.executable, "-v", "-m", "onceflow.runtime.hosts.spark.daemon", "pyspark.worker"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([archive, os.environ.get("PYTHONPATH", "")])},
        stdin=subprocess.DEVNULL,  # so it ends once it is ready, as Spark ends it: with code 1
        capture_output=True,
        check=False,
    )
    loaded = [
        line for line in done.stderr.decode(errors="replace").splitlines() if "pyspark/worker.p" in line
    ]
    assert loaded, "it was imported ahead"
    assert not [line for line in loaded if archive in line]
