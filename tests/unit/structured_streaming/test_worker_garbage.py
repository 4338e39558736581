"""What is spared from the garbage collection of Spark's Python processes."""

from __future__ import annotations

import subprocess
import sys

SAY = (
    "import gc\n"
    "from onceflow.structured_streaming.worker_garbage import spare_imports\n"
    "spare_imports()\n"
    "first = gc.get_freeze_count()\n"
    "cycle = []; cycle.append(cycle); del cycle\n"
    "spare_imports()\n"
    "print(first, gc.get_freeze_count(), gc.collect())"
)


MORE = (
    "import gc, numba\n"
    "from onceflow.structured_streaming.worker_garbage import spare_imports\n"
    "spare_imports()\n"
    "first = gc.get_freeze_count()\n"
    "import polars\n"
    "spare_imports()\n"
    "print(first, gc.get_freeze_count())"
)


def test_many_modules_that_are_imported_later_are_spared_too() -> None:
    done = subprocess.run([sys.executable, "-c", MORE], capture_output=True, text=True, check=True)
    first, second = map(int, done.stdout.split())
    assert second > first + 1_000


def test_what_is_imported_is_spared_once_and_what_comes_later_is_collected() -> None:
    done = subprocess.run([sys.executable, "-c", SAY], capture_output=True, text=True, check=True)
    first, second, collected = map(int, done.stdout.split())
    assert first > 1_000
    assert second <= first  # frozen again, the cycle would be among them
    assert collected >= 1
