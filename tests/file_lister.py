"""One who lists the folder of a file sink all the time, opens all he sees, and says what is wrong with it."""

from __future__ import annotations

import hashlib
import io
import json
import threading
from collections import Counter
from typing import Any, Self

import duckdb
import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
from isal import igzip

_ENDINGS = (".jsonl", ".jsonl.zst", ".csv", ".csv.gz", ".parquet", ".avro")


class FileLister:
    """Runs while it is entered. `problems`: half files, and files that changed or vanished."""

    def __init__(self, fs: Any, root: str) -> None:
        self._fs = fs
        self._root = root
        self._hashes: dict[str, bytes] = {}
        self._versions: dict[str, tuple[Any, ...]] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look_on, daemon=True)
        self.problems: list[str] = []
        self.looks = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def files(self) -> list[str]:
        """What anybody sees: no name in the path begins with "." or "_"."""
        self._fs.invalidate_cache()
        paths = self._fs.find(self._root)
        return [p for p in paths if p.endswith(_ENDINGS) and not _is_hidden(p.removeprefix(self._root))]

    def rows(self) -> Counter[int]:
        """The numbers of all rows, from whole files."""
        rows: Counter[int] = Counter()
        for path in self.files():
            content = self._fs.cat_file(path)
            found = hashlib.blake2b(content).digest()
            assert self._hashes.get(path, found) == found, f"{path} changed"
            rows.update(numbers(path, content))
        return rows

    def _look_on(self) -> None:
        while not self._over.is_set() and not self.problems:
            self._look()

    def _look(self) -> None:
        self._fs.invalidate_cache()
        there = self.files()
        for path in sorted(self._hashes.keys() - set(there)):
            self.problems.append(f"{path} vanished")
        for path in there:
            try:
                self._open(path)
            except Exception as error:
                self.problems.append(f"{path}: {type(error).__name__}: {error}")
        self.looks += 1

    def _open(self, path: str) -> None:
        """A new file is read; of one that was read before it is enough whether it could have changed."""
        info = self._fs.info(path)
        version = tuple(info.get(name) for name in ("size", "ETag", "ino", "mtime"))
        if self._versions.setdefault(path, version) != version:
            self.problems.append(f"{path} changed: {self._versions[path]}, {version}")
        if path not in self._hashes:
            content = self._fs.cat_file(path)
            numbers(path, content)
            self._hashes[path] = hashlib.blake2b(content).digest()


def numbers(path: str, content: bytes) -> list[int]:
    """The column `number` of a file. Raises anything if it is not a whole one."""
    if path.endswith(".parquet"):
        return pq.read_table(pa.BufferReader(content), columns=["number"])["number"].to_pylist()
    if path.endswith(".avro"):
        return [row["number"] for row in fastavro.reader(io.BytesIO(content))]  # type: ignore[call-overload]
    if path.endswith(".zst"):
        content = pa.CompressedInputStream(pa.BufferReader(content), "zstd").read()
    if path.endswith(".gz"):
        content = igzip.IGzipFile(fileobj=io.BytesIO(content)).read()
    assert content.endswith(b"\n"), "its last line is cut off"
    lines = content.splitlines()
    if ".csv" in path:
        assert lines[0].startswith(b'"number"'), lines[0]
        return [int(line.partition(b",")[0]) for line in lines[1:]]
    return [json.loads(line)["number"] for line in lines]


def judged_by_duckdb(folder: str, pattern: str) -> tuple[int, int, int, int]:
    """(rows, different numbers, lowest, highest), as DuckDB reads the files."""
    (found,) = duckdb.sql(
        f"select count(*), count(distinct number), min(number), max(number) from '{folder}/{pattern}'"
    ).fetchall()
    return found


def _is_hidden(path: str) -> bool:
    return any(part.startswith((".", "_")) for part in path.split("/"))
