"""The daemon that forks Spark's workers: what its forks are spared."""

from __future__ import annotations

import subprocess
import sys


def test_the_daemon_has_all_imported_and_spared_before_it_forks() -> None:
    said = subprocess.run(
        [
            sys.executable,
            "-c",
            "import gc, sys, threading\n"
            "from onceflow.structured_streaming import daemon\n"
            "daemon.preload()\n"
            "print(gc.get_freeze_count(), len(gc.get_objects()), threading.active_count(), "
            "'pyspark.worker' in sys.modules)",
        ],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    spared, left = int(said[0]), int(said[1])
    assert spared > 100 * left, "a fork looks through what is left, and nothing else"
    assert said[2:] == ["1", "True"]
