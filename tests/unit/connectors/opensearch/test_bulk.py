"""Bulk requests, and what their answers say of each row."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from onceflow.connectors.opensearch.bulk import BulkRows, answer_of
from onceflow.connectors.versioned_upserts.backend import Piece
from onceflow.connectors.versioned_upserts.documents import Documents
from onceflow.runtime.errors import Fatal, Retryable

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.float64())])


def test_each_row_is_put_or_deleted_under_its_key_with_the_version() -> None:
    keys = ["a", 'b"\n', "", "x" * 513, "nan", "gone nan"]
    values = [1.5, None, 2.0, 3.0, float("nan"), float("nan")]
    rows = pa.record_batch([pa.array(keys), pa.array(values)], schema=SCHEMA)
    gone = np.array([False, True, False, False, False, True])
    body, places, bad = BulkRows(Documents(SCHEMA)).request(Piece(keys, gone, rows), 7 << 32)
    lines = [msgspec.json.decode(line) for line in body.splitlines()]
    version = {"version": 7 << 32, "version_type": "external"}
    assert lines == [
        {"index": {"_id": "a", **version}},
        {"k": "a", "v": 1.5},
        {"delete": {"_id": 'b"\n', **version}},
        {"delete": {"_id": "gone nan", **version}},
    ]
    assert places == [0, 1, 5]
    assert sorted(bad) == [2, 3, 4]
    assert "JSON has" in bad[4]


def item(status: int, kind: str = "", reason: str = "") -> dict[str, Any]:
    told: dict[str, Any] = {"status": status}
    if kind:
        told["error"] = {"type": kind, "reason": reason}
    return {"index": told}


def test_what_is_there_already_is_done_and_what_is_refused_is_bad_or_busy() -> None:
    items = [
        item(201),
        item(409, "version_conflict_engine_exception", "is higher or equal"),
        {"delete": {"status": 404}},
        item(429, "rejected_execution_exception"),
        item(503, "unavailable_shards_exception"),
        item(403, "cluster_block_exception", "disk usage exceeded"),
        item(400, "mapper_parsing_exception", "failed to parse"),
    ]
    answer = answer_of(items, [10, 11, 12, 13, 14, 15, 16], {3: "no key"}, "writing")
    assert list(answer.busy) == [13, 14, 15]
    assert answer.bad == {3: "no key", 16: "failed to parse"}


def test_what_is_no_rows_fault_is_raised() -> None:
    with pytest.raises(Fatal, match="writing: the server answers 403: no permissions"):
        answer_of([item(403, "security_exception", "no permissions")], [0], {}, "writing")
    with pytest.raises(Retryable, match="writing: the index is gone"):
        answer_of([item(404, "index_not_found_exception")], [0], {}, "writing")
