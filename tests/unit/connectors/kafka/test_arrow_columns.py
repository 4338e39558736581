"""Columns of fetched records, as far as no kernel fills them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from onceflow.connectors.kafka.arrow_columns import headers_of
from onceflow.connectors.kafka.fetched import HEADERS_TYPE


def test_bytes_in_a_headers_name_that_are_no_text_are_replaced() -> None:
    starts = np.array([0, 0, 2], np.int32)
    names, values = pa.array([b"\xffx", b"ok"], pa.binary()), pa.array([None, b"1"], pa.binary())
    headers = headers_of(starts, names, values)
    headers.validate(full=True)
    assert headers.type == HEADERS_TYPE
    assert headers.to_pylist() == [[], [{"key": "\ufffdx", "value": None}, {"key": "ok", "value": b"1"}]]
