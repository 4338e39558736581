"""A slot's state read from the checkpoint folder, as at a restore: checked, then taken, with many keys in it.

    python -m benchmarks.restore --keys 1000000 --files 8
    python -m benchmarks.restore --answer-ms 20 --mb-per-s 60

Reads by `StateFiles.read_all`: one piece at a time, and as a slot does it. Without `--answer-ms` from a
folder of this machine. With it from a store behind a network that is played: each request is answered after
so long, and each connection brings so many MB a second. Prints for each the seconds until all files are
checked, those until all rows were taken, and the bytes asked of the store, as a multiple of those there are.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from onceflow.runtime.checkpoint.checked_files import AT_ONCE
from onceflow.runtime.checkpoint.local_store import LocalStore
from onceflow.runtime.checkpoint.manifest import StateHandle
from onceflow.runtime.checkpoint.state_files import StateFiles
from onceflow.runtime.state.operator_state import FrozenState
from onceflow.runtime.testing.harness import TableRows

GROUPS = 128


class PlayedNetwork(LocalStore):
    """A DistantStore on a folder: answers come after a time, and bytes at a rate."""

    def __init__(self, folder: str, answer_ms: float, mb_per_s: float) -> None:
        super().__init__(folder)
        self._answer_s = answer_ms / 1000
        self._bytes_per_s = mb_per_s * 1e6
        self.asked_bytes = 0

    def read_range(self, path: str, offset: int, size: int) -> bytes:
        with super().open(path) as file:
            file.seek(offset)
            content = file.read(size)
        self._wait(2 * self._answer_s + len(content) / self._bytes_per_s)  # how large it is, and the bytes
        self.asked_bytes += len(content)
        return content

    def read_all(self, paths: Iterable[str]) -> Mapping[str, bytes]:
        return {path: self.read(path) for path in paths}

    def abandon_uploads(self, is_left: Callable[[str], bool]) -> None:
        """There are none."""

    def _wait(self, seconds: float) -> None:
        threading.Event().wait(seconds)


def written(folder: str, keys: int, files: int) -> list[StateHandle]:
    """State of so many keys in so many files, each of an operator of its own."""
    rng, writer, handles = np.random.default_rng(1), StateFiles(LocalStore(folder), 1), []
    for number in range(files):
        rows = keys // files
        groups = np.sort(rng.integers(0, GROUPS, rows)).astype(np.uint16)
        users = pa.array([f"user-{n:09d}" for n in rng.integers(0, 10 * keys, rows)])
        totals = pa.array(rng.integers(0, 1 << 40, rows))
        table = pa.table({"key_group": groups, "user": users, "total": totals})
        frozen = FrozenState(range(GROUPS), {"keys": TableRows(table)})
        handles.append(writer.write(1, f"totals-{number}", 0, frozen))
    return handles


def read(files: StateFiles, handles: list[StateHandle]) -> tuple[float, float, int]:
    """Seconds until all is checked, and until all is taken; how many rows there were."""
    began_s, rows = time.monotonic(), 0
    states = files.read_all([(handle, range(GROUPS)) for handle in handles])
    checked_s = time.monotonic() - began_s
    for state in states:
        rows += sum(batch.num_rows for batch in state.batches("keys"))
    return checked_s, time.monotonic() - began_s, rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--files", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--answer-ms", type=float)
    parser.add_argument("--mb-per-s", type=float, default=60.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="onceflow-bench-") as folder:
        handles = written(folder, options.keys, options.files)
        size = sum(handle.size for handle in handles)
        for at_once in (1, AT_ONCE):
            took, asked = [], 0.0
            for _ in range(options.rounds):
                store: Any = LocalStore(folder)
                if options.answer_ms is not None:
                    store = PlayedNetwork(folder, options.answer_ms, options.mb_per_s)
                checked_s, all_s, rows = read(StateFiles(store, 2, at_once=at_once), handles)
                assert rows == options.keys // options.files * options.files
                took.append((checked_s, all_s))
                asked = getattr(store, "asked_bytes", 0) / size
            checked, taken = (statistics.median(each) for each in zip(*took, strict=True))
            figures = {"checked_s": round(checked, 3), "taken_s": round(taken, 3), "asked": round(asked, 2)}
            print(json.dumps({"at_once": at_once, "mb": round(size / 1e6, 1), **figures}), flush=True)


if __name__ == "__main__":
    main()
