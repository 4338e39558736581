"""The folder queue passes the suites of sources and of readers that acknowledge."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from onceflow.runtime.contracts import Source
from onceflow.runtime.testing.conformance import ACKNOWLEDGING_CHECKS, SOURCE_CHECKS, QueueUnderTest
from onceflow.runtime.testing.connectors.folder_queue import FolderQueue, add_message

SCHEMA = pa.schema([("n", pa.int64())])


def filled(folder: Path) -> FolderQueue:
    for n in range(9):
        add_message(folder, f"message-{n}", {"n": n})
    return FolderQueue(str(folder), SCHEMA, splits=3, is_bounded=True)


@pytest.mark.parametrize("check", SOURCE_CHECKS, ids=lambda check: check.__name__)
def test_as_a_source(check: Callable[[Source], None], tmp_path: Path) -> None:
    check(filled(tmp_path))


@pytest.mark.parametrize("check", ACKNOWLEDGING_CHECKS, ids=lambda check: check.__name__)
def test_as_a_queue(check: Callable[[QueueUnderTest], None], tmp_path: Path) -> None:
    check(QueueUnderTest(filled(tmp_path), lambda: len(list(tmp_path.glob("*.json")))))
