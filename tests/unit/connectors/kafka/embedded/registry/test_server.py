"""The registry's process: what it answered is on disk, half a line is nothing, one process has a folder."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient, SchemaRegistryError

from onceflow.connectors.kafka.embedded.registry.server import RegistryServer
from onceflow.runtime.errors import OnceflowError


@contextmanager
def serving(folder: Path) -> Iterator[SchemaRegistryClient]:
    server = RegistryServer(folder, 0)
    thread = threading.Thread(target=server.serve, daemon=True)
    thread.start()
    try:
        yield SchemaRegistryClient({"url": server.url, "timeout": 60, "max.retries": 0})
    finally:
        server.stop()
        thread.join(60)


def schema(*fields: str) -> Schema:
    made = [{"name": name, "type": "int", "default": 0} for name in fields]
    return Schema(json.dumps({"type": "record", "name": "R", "fields": made}), "AVRO")


def test_confluents_client_finds_everything_again_after_a_restart(tmp_path: Path) -> None:
    name = "geo/place.proto é"  # a subject may have a slash
    with serving(tmp_path) as client:
        assert client.register_schema(name, schema("x")) == 1
        assert client.register_schema(name, schema("x", "y")) == 2
        client.set_compatibility(name, "FULL")
        client.delete_version(name, 1)
    with serving(tmp_path) as client:
        assert client.get_subjects() == [name]
        assert client.get_versions(name) == [2]
        assert client.get_compatibility(name) == "FULL"
        assert client.get_schema(1).schema_str == schema("x").schema_str.replace(" ", "")
        assert client.lookup_schema(name, schema("x", "y")).version == 2
        assert client.register_schema("other", schema("z")) == 3
        with pytest.raises(SchemaRegistryError, match="40401"):
            client.get_versions("nobody")


def test_half_a_line_at_the_end_was_never_answered(tmp_path: Path) -> None:
    with serving(tmp_path) as client:
        client.register_schema("a", schema("x"))
    journal = tmp_path / "schemas.jsonl"
    whole = journal.read_bytes()
    for cut in range(whole.index(b"\n") + 1, len(whole)):
        journal.write_bytes(whole[:cut])
        with serving(tmp_path) as client:
            assert client.get_subjects() == []
            assert client.register_schema("a", schema("x")) == 1
        assert journal.read_bytes() == whole


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    (tmp_path / "schemas.jsonl").write_bytes(b"{}\n")
    with pytest.raises(OnceflowError, match=r"line 1 of .*schemas\.jsonl is damaged"):
        RegistryServer(tmp_path, 0)


def test_a_folder_has_one_registry(tmp_path: Path) -> None:
    with serving(tmp_path), pytest.raises(OnceflowError, match="another process has the schema registry"):
        RegistryServer(tmp_path, 0)


def test_a_request_that_is_no_json_is_refused(tmp_path: Path) -> None:
    server = RegistryServer(tmp_path, 0)
    try:
        status, said = server.answer("POST", "/subjects/a/versions", b"{")
        assert (status, said["error_code"]) == (400, 400)
        assert server.answer("GET", "/subjects?deleted=true", b"") == (200, [])
    finally:
        server.close()
