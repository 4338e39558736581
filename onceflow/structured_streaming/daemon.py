"""The process that forks Spark's Python workers, with what our source and sink import already imported.

Optional: `spark.python.daemon.module=onceflow.structured_streaming.daemon` when the session is started.
Each micro-batch makes new Python processes; without this each of them imports pyarrow, polars and
librdkafka anew. Nothing here starts a thread: threads do not survive a fork.
"""

import importlib

from pyspark.daemon import manager

PRELOADED = (
    "pyspark.sql.pandas.types",
    "pyarrow.compute",
    "onceflow.structured_streaming.data_source",
    "onceflow.structured_streaming.sink",
    "onceflow.structured_streaming.source",
)

if __name__ == "__main__":
    for name in PRELOADED:
        importlib.import_module(name)
    manager()
