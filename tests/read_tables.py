"""What a reader sees that is not onceflow: tables by DuckDB, whose extensions come from PyPI."""

from __future__ import annotations

from functools import cache
from importlib import util
from pathlib import Path
from typing import Any

import duckdb


def read_delta(url: str, columns: str = "*") -> list[dict[str, Any]]:
    """The rows of a Delta table."""
    return _rows(f"SELECT {columns} FROM delta_scan('{url}')")


def read_iceberg(metadata_location: str, columns: str = "*") -> list[dict[str, Any]]:
    """The rows of an Iceberg table."""
    return _rows(f"SELECT {columns} FROM iceberg_scan('{metadata_location}')")


def _rows(query: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = _connection().cursor().execute(query).to_arrow_table().to_pylist()
    return rows


@cache
def _connection() -> Any:
    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    for name in ("delta", "avro", "iceberg"):
        connection.execute(f"LOAD '{_extension(name)}'")
    return connection


def _extension(name: str) -> Path:
    spec = util.find_spec(f"duckdb_extension_{name}")
    assert spec is not None
    assert spec.origin is not None, "pip install --group dev"
    return next(Path(spec.origin).parent.glob(f"extensions/*/{name}.duckdb_extension"))
