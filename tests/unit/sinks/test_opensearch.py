"""OpenSearchSink: what is refused when it is made, and what is no store's matter."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from onceflow.runtime.errors import GraphError, OptionError
from onceflow.sinks.opensearch import OpenSearchSink

URL = "http://localhost:9200"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"key": ""}, "without a key nothing can be appended exactly once"),
        ({"key": [""]}, "key must name the column"),
        ({"url": "localhost:9200"}, "url must begin with http:// or https://"),
        ({"url": []}, "url must begin with http:// or https://"),
        ({"url": "http://"}, "and name a host"),
        ({"index": "Orders"}, "index='Orders' must be the name of one index, in small letters"),
        ({"index": "orders-*"}, "must be the name of one index"),
        ({"bad_rows_to": ""}, "bad_rows_to='' must be"),
        ({"bad_rows_to": "orders"}, "an index has two purposes"),
        ({"index": "onceflow-ledger"}, "an index has two purposes"),
        ({"create_index": "yes"}, "create_index must be True, or what to make the index with"),
        ({"delivery_timeout": "soon"}, "delivery_timeout='soon' is not a duration"),
    ],
)
def test_options_that_are_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        OpenSearchSink(**{"url": URL, "index": "orders", "key": "id", **options})


def test_columns_that_can_be_no_key_are_refused_when_the_job_is_built() -> None:
    sink = OpenSearchSink([URL, URL], "orders", "id")
    sink.check(pa.schema([("id", pa.int64())]), "out")
    with pytest.raises(GraphError, match="key column 'id' is not in the rows"):
        sink.check(pa.schema([("ID", pa.int64())]), "out")
    with pytest.raises(GraphError, match="key column 'id' is double, which can't be a key"):
        sink.check(pa.schema([("id", pa.float64())]), "out")


def test_a_password_is_in_no_text_of_it() -> None:
    sink = OpenSearchSink(URL.replace("//", "//ann:secret@"), "orders", "id", headers={"X": "secret"})
    assert "secret" not in repr(sink) + sink.plan_note
