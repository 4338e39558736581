"""A query of Structured Streaming into one of our formats."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any


class Query:
    """A query over JSON files, one a batch, that may be run again and again from its checkpoint."""

    def __init__(self, spark: Any, folder: Path, name: str, **options: str) -> None:
        self.spark = spark
        self.folder = folder
        self.format = name
        self.files = 0
        self.checkpoint = folder / "checkpoint"
        self.options = {"uid": "rows", "checkpointLocation": str(self.checkpoint), **options}
        (folder / "input").mkdir()

    def add(self, *rows: dict[str, Any]) -> None:
        temporary = self.folder / "file"
        temporary.write_text("".join(json.dumps(row) + "\n" for row in rows))
        temporary.rename(self.folder / "input" / f"{self.files:05}.json")
        self.files += 1

    def run(
        self, shape: Callable[[Any], Any] = lambda rows: rows, mode: str = "append", **options: str | None
    ) -> None:
        """Run until the input is used up. An option that is None is left out."""
        rows = self.spark.readStream.schema("id long, name string").option("maxFilesPerTrigger", 1)
        given = {name: value for name, value in {**self.options, **options}.items() if value is not None}
        writing = shape(rows.json(str(self.folder / "input"))).writeStream.outputMode(mode)
        query = writing.format(self.format).options(**given).trigger(availableNow=True).start()
        assert query.awaitTermination(200), "the query does not end"

    def left(self) -> list[str]:
        """The files of ours in the checkpoint."""
        return sorted(p.name for p in (self.checkpoint / "onceflow").rglob("*") if p.is_file())
