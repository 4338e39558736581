"""A program that makes Spark load the classes that a job needs, for `class_archive.py`.

    python -m onceflow.runtime.hosts.spark.class_workload FOLDER JAVA_OPTION...

Runs what a job runs, a barrier stage, in a local Spark whose JVM is given these options; ends when that JVM
has ended. Everything it writes is in FOLDER.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from pyspark import SparkConf, SparkContext

from onceflow.runtime.hosts.spark.class_archive import as_setting

SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.log.level": "OFF",
    "spark.ui.enabled": "false",
}


def run(folder: Path, java_options: Sequence[str]) -> None:
    """Returns when the JVM has ended."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    conf = (
        SparkConf(loadDefaults=True)
        .setMaster("local[2]")
        .setAppName("class-workload")
        .setAll(list(SETTINGS.items()))
    )
    conf.set("spark.driver.extraJavaOptions", as_setting(java_options))
    conf.set("spark.local.dir", str(folder))
    context = SparkContext(conf=conf)
    jvm = vars(context._gateway)["proc"]
    context.parallelize(range(2), 2).barrier().mapPartitions(list).count()
    context.stop()
    jvm.stdin.close()  # that is how it learns that its Python has ended
    jvm.wait()


if __name__ == "__main__":
    run(Path(sys.argv[1]), sys.argv[2:])
