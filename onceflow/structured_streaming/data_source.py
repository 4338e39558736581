"""OnceflowKafka: what Spark makes of `.format("onceflow-kafka")`, once in the driver for each use.

Reading and writing are loaded when they are used: Spark makes a new Python process for each step.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import DataSource

NAME = "onceflow-kafka"


class OnceflowKafka(DataSource):
    """See pyspark.sql.datasource.DataSource. Holds the options, as the user wrote them, and nothing else."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> Any:
        from onceflow.structured_streaming.source import source_schema

        return source_schema(self.options)

    def reader(self, schema: Any) -> Any:
        from onceflow.structured_streaming.source import batch_reader

        return batch_reader(schema, self.options)

    def streamReader(self, schema: Any) -> Any:
        from onceflow.structured_streaming.source import stream_reader

        return stream_reader(schema, self.options)

    def writer(self, schema: Any, overwrite: bool) -> Any:
        from onceflow.structured_streaming.sink import batch_writer

        return batch_writer(schema, self.options, overwrite)

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:
        from onceflow.structured_streaming.sink import stream_writer

        return stream_writer(schema, self.options, overwrite)
