"""What answers of OpenSearch mean, and how it is asked."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from onceflow.connectors.opensearch.client import Access, OpenSearchClient, error_text, failure_of
from onceflow.runtime.errors import Fatal, Indeterminate, Retryable
from tests.scripted_http import Asked, ScriptedHttp, Told

BLOCKED = {"error": {"type": "cluster_block_exception", "reason": "disk usage exceeded"}}


@pytest.mark.parametrize(
    ("status", "said", "kind"),
    [
        (200, {}, None),
        (404, {}, None),
        (409, {}, None),
        (413, {}, None),
        (429, {}, Retryable),
        (401, {"error": "Unauthorized"}, Fatal),
        (403, {"error": {"type": "security_exception", "reason": "no permissions"}}, Fatal),
        (403, BLOCKED, Retryable),
        (301, {}, Fatal),
        (500, {}, Indeterminate),
        (503, {}, Indeterminate),
    ],
)
def test_what_an_answer_means(status: int, said: Any, kind: type[Exception] | None) -> None:
    failure = failure_of(status, said, "sink 'out': writing rows")
    assert (None if failure is None else type(failure)) is kind
    if failure is not None:
        assert str(failure).startswith(f"sink 'out': writing rows: the server answers {status}")


def test_the_reason_of_an_error_comes_with_its_cause() -> None:
    told = {"error": {"reason": "failed to parse", "caused_by": {"reason": "no number"}}}
    assert error_text(told) == ": failed to parse: no number"
    assert error_text({"error": "Unauthorized"}) == ": Unauthorized"
    assert error_text({}) == error_text([]) == ""


def client(*urls: str, **headers: str) -> OpenSearchClient:
    return OpenSearchClient(Access(urls, headers, None), "sink 'out'", 1)


def test_the_login_of_the_url_is_a_header_and_no_part_of_a_message() -> None:
    with ScriptedHttp(lambda _: Told(401)).running() as server:
        url = server.url.replace("//", "//ann:s%40crct@") + "/base/"
        with pytest.raises(Fatal, match="answers 401: correct the user") as told:
            client(url).call("asking", "GET", "/orders")
    (asked,) = server.asked
    assert asked.path == "/base/orders"
    assert asked.headers["authorization"] == "Basic " + base64.b64encode(b"ann:s@crct").decode()
    assert "crct" not in str(told.value)


def test_headers_take_variables_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ES_KEY", "k1")
    with ScriptedHttp(lambda _: Told()).running() as server:
        client(server.url, Authorization="ApiKey ${ES_KEY}").call("asking", "POST", "/_bulk", b"{}\n")
        assert server.asked[0].headers["Authorization"] == "ApiKey k1"
        assert server.asked[0].headers["Content-Type"] == "application/x-ndjson"
        with pytest.raises(Fatal, match="sink 'out': a header names the environment variable 'NONE'"):
            client(server.url, Authorization="${NONE}")


def test_after_a_broken_connection_another_server_is_asked() -> None:
    def cut(_: Asked) -> Told:
        return Told(is_cut=True)

    with ScriptedHttp(cut).running() as first, ScriptedHttp(lambda _: Told()).running() as second:
        asking = client(first.url, second.url)
        with pytest.raises(Indeterminate, match="sink 'out': asking: "):
            asking.call("asking", "GET", "/")
        assert asking.call("asking", "GET", "/").status == 200
    gone = client(first.url)
    with pytest.raises(Retryable, match="refused"):
        gone.call("asking", "GET", "/")
