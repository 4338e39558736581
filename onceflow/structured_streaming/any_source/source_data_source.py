"""SourceDataSource: what Spark makes of `.format(...)` of a source, once in the driver for each use."""

from __future__ import annotations

from typing import Any, ClassVar

from pyspark.sql.datasource import DataSource

from onceflow.runtime.errors import UsageError
from onceflow.structured_streaming.any_source.source_format import SourceFormat, schema_of


class SourceDataSource(DataSource):
    """See pyspark.sql.datasource.DataSource. Each format is a class with its own `reading`: formats.py."""

    reading: ClassVar[SourceFormat]

    @classmethod
    def name(cls) -> str:
        return cls.reading.name

    def schema(self) -> Any:
        return schema_of(self.reading, self.options)

    def streamReader(self, schema: Any) -> Any:
        from onceflow.structured_streaming.any_source.stream_reader import stream_reader

        return stream_reader(self.reading, schema, self.options)

    def reader(self, schema: Any) -> Any:
        raise UsageError(
            f"{self.reading.name} is a stream: use spark.readStream, with availableNow for a batch"
        )

    def writer(self, schema: Any, overwrite: bool) -> Any:
        raise UsageError(f"{self.reading.name} can only be read: use the sink of another format")

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:
        return self.writer(schema, overwrite)
