"""The registry's client: what is asked once, what is waited for, what is bad and what ends the job."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pyarrow as pa
import pytest

from onceflow.connectors.formats import Avro
from onceflow.connectors.formats.avro.decode import AvroDecoder
from onceflow.connectors.formats.avro.schema.nodes import parse_registered
from onceflow.connectors.formats.avro.schema.target import targets_of_arrow
from onceflow.connectors.formats.registry.client import ConfluentRegistry
from onceflow.connectors.formats.registry.schemas import RegistrySchemas, UnknownSchemaError
from onceflow.runtime.errors import Fatal, Retryable

SCHEMA = {"type": "record", "name": "R", "fields": [{"name": "x", "type": "long"}]}
COLUMNS = pa.schema([pa.field("x", pa.int64())])
Answer = tuple[int, Any]
SILENCE: Answer = (0, None)


class Registry:
    """An HTTP server that answers one request after the other as it was told; the last answer stays.

    SILENCE: it takes the request and says nothing until it is closed.
    """

    def __init__(self, *answers: Answer) -> None:
        self.asked: list[tuple[str, str]] = []
        self._closed = threading.Event()
        registry, left = self, list(answers)

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                registry.asked.append((self.path, self.headers.get("Authorization", "")))
                answer = left.pop(0) if len(left) > 1 else left[0]
                if answer is SILENCE:
                    registry._closed.wait()
                    return
                status, body = answer
                raw = body if isinstance(body, bytes) else json.dumps(body).encode()
                length = int(self.headers.get("Content-Length", 0))
                self.rfile.read(length)
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(raw)))
                self.end_headers()
                self.wfile.write(raw)

            do_POST = do_GET

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._closed.set()
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def serve() -> Iterator[Callable[..., Registry]]:
    registries: list[Registry] = []

    def start(*answers: Answer) -> Registry:
        registries.append(Registry(*answers))
        return registries[-1]

    yield start
    for each in registries:
        each.close()


GOOD = (200, {"schema": json.dumps(SCHEMA)})
VALUE = b"\0\0\0\0\x07\x06"


def test_a_schema_is_asked_for_once_in_a_process(serve: Callable[..., Registry]) -> None:
    registry = serve(GOOD)
    for _ in range(3):
        decoded = Avro(COLUMNS, registry=registry.url).decoder().decode([VALUE] * 2)
        assert decoded.batch.to_pylist() == [{"x": 3}] * 2
    assert [path for path, _ in registry.asked] == ["/schemas/ids/7"]


def test_an_unknown_id_is_bad_and_asked_for_again_after_a_while(serve: Callable[..., Registry]) -> None:
    registry = serve((404, {"error_code": 40403, "message": "Schema not found"}), GOOD)
    time_s = 100.0
    client = ConfluentRegistry({"url": registry.url}, 1_000, lambda: time_s)
    schemas = RegistrySchemas(client, "AVRO", parse_registered)
    decoder = AvroDecoder(targets_of_arrow(COLUMNS, None), schemas, "error")
    for _ in range(2):
        decoded = decoder.decode([VALUE, VALUE])
        assert [bad.row for bad in decoded.bad] == [0, 1]
        assert "there is no schema 7 in the registry" in decoded.bad[0].reason
    assert len(registry.asked) == 1
    time_s += 11
    assert decoder.decode([VALUE]).batch.to_pylist() == [{"x": 3}]


def test_a_registry_that_fails_is_asked_until_it_answers(serve: Callable[..., Registry]) -> None:
    registry = serve((503, {"error_code": 50301, "message": "starting"}), (500, b"<html>"), GOOD)
    assert Avro(COLUMNS, registry=registry.url).decoder().decode([VALUE]).batch.num_rows == 1
    assert len(registry.asked) == 3


@pytest.mark.parametrize("given", [{"timeout": 0.2}, {"timeout": None}], ids=["user's", "none"])
def test_a_request_that_is_never_answered_is_asked_again(
    serve: Callable[..., Registry], given: dict[str, Any]
) -> None:
    """Confluent's client has no deadline of its own: it would read for ever."""
    registry = serve(SILENCE, SILENCE, GOOD)
    schemas = ConfluentRegistry({"url": registry.url, **given}, 200 if given["timeout"] is None else 60_000)
    if given["timeout"] is None:
        with pytest.raises(Retryable, match="can't be reached"):
            schemas.schema(7, "AVRO")
    else:
        schemas.schema(7, "AVRO")
        assert len(registry.asked) == 3


def test_a_registry_that_stays_away_makes_no_record_bad(serve: Callable[..., Registry]) -> None:
    gone = serve(GOOD)
    gone.close()
    decoder = Avro(COLUMNS, registry=gone.url, registry_timeout="300 ms").decoder()
    with pytest.raises(Retryable, match="can't be reached"):
        decoder.decode([VALUE])
    encoder = Avro(registry=gone.url, registry_timeout="300 ms", subject="s").encoder(COLUMNS)
    with pytest.raises(Retryable, match="can't be reached"):
        encoder.encode(pa.RecordBatch.from_pylist([{"x": 1}], COLUMNS))


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((401, {"error_code": 40101, "message": "who are you"}), "denies access"),
        ((403, {"error_code": 40301, "message": "no"}), "denies access"),
        ((404, b"<html>no such page</html>"), "is the URL right"),
    ],
)
def test_what_a_restart_would_meet_again_ends_the_job(
    serve: Callable[..., Registry], answer: Answer, said: str
) -> None:
    with pytest.raises(Fatal, match=said):
        Avro(COLUMNS, registry=serve(answer).url).decoder().decode([VALUE])


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"schema": "syntax = 'proto3';", "schemaType": "PROTOBUF"}, "PROTOBUF"),
        ({"schema": '{"type":"record"}'}, "can't be used"),
        ({"schema": '"long"'}, "no record"),
        ({"schema": '{"type":"record","name":"L","fields":[{"name":"next","type":["null","L"]}]}'}, "itself"),
    ],
)
def test_a_schema_that_is_no_use_makes_its_records_bad(
    serve: Callable[..., Registry], body: Any, said: str
) -> None:
    decoded = Avro(COLUMNS, registry=serve((200, body)).url).decoder().decode([VALUE])
    assert said in decoded.bad[0].reason


def test_settings_go_to_the_client_and_a_password_stays_out_of_messages(
    serve: Callable[..., Registry],
) -> None:
    registry = serve((401, {"error_code": 40101, "message": "who are you"}))
    config = {"url": registry.url, "basic.auth.user.info": "me:hush"}
    with pytest.raises(Fatal) as caught:
        ConfluentRegistry(config, 1_000).schema(1, "AVRO")
    assert "hush" not in str(caught.value)
    assert registry.asked[0][1] == "Basic " + base64.b64encode(b"me:hush").decode()


def test_an_id_that_can_not_be_one_is_not_asked_for(serve: Callable[..., Registry]) -> None:
    registry = serve(GOOD)
    with pytest.raises(UnknownSchemaError, match="not a schema id"):
        ConfluentRegistry({"url": registry.url}, 1_000).schema(1 << 31, "AVRO")
    assert not registry.asked
