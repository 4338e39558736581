"""The process that forks the Python workers of Spark's tasks, with what our source and sink need imported.

Optional: `spark.python.daemon.module=onceflow.structured_streaming.daemon` when the session is started.
Without it each worker imports pyarrow, polars and librdkafka anew, and numba with the kernels (5 CPU-seconds
on a slow core). Spark plans and commits in processes of another daemon, which is always its own. Nothing
here starts a thread: threads do not survive a fork.
"""

from __future__ import annotations

import gc
import importlib

from onceflow.runtime.hosts.spark.installed_package import use_packages
from onceflow.structured_streaming.worker_garbage import spare_imports

PRELOADED = (
    "pyspark.worker",
    "pyspark.sql.pandas.types",
    "pyarrow.compute",
    "onceflow.connectors.formats.avro.format",
    "onceflow.connectors.formats.json.format",
    "onceflow.structured_streaming.data_source",
    "onceflow.structured_streaming.sink",
    "onceflow.structured_streaming.source",
    "onceflow.structured_streaming.source_tasks",
)


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
