"""tight_rocksdb: what a test that failed on purpose leaves open holds nobody up later."""

from __future__ import annotations

import pytest

from onceflow.runtime.testing.tight_state import tight_rocksdb

rocksdict = pytest.importorskip("rocksdict")


def test_a_database_that_was_left_open_is_closed_before_its_folder_goes() -> None:
    with tight_rocksdb() as state:
        database = state._database()  # type: ignore[attr-defined]
        database.put([(b"12345678", b"content")])
        assert database.get([b"12345678"]) == [b"content"]
    with pytest.raises(rocksdict.DbClosedError):
        database.get([b"12345678"])
    database.close()
