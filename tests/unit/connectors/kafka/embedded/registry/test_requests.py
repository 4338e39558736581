"""Confluent's requests, one by one: what is answered, and what is refused with Confluent's code."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from onceflow.connectors.kafka.embedded.registry.requests import RefusedRequest, Requests
from onceflow.connectors.kafka.embedded.registry.subjects import Change, Subjects

INT = {"schema": '"int"'}
LONG = {"schema": '"long"'}
TEXT = {"schema": '"string"'}


class Registry:
    """In memory; `kept`: what would be in the journal."""

    def __init__(self) -> None:
        self.kept: list[Change] = []
        self._subjects = Subjects()
        self._requests = Requests(self._subjects, self._keep)

    def _keep(self, changes: list[Change]) -> None:
        self.kept += changes
        for change in changes:
            self._subjects.apply(change)

    def ask(self, method: str, path: str, body: Any = None, **query: str) -> Any:
        return self._requests.answer(method, tuple(part for part in path.split("/") if part), query, body)

    def put(self, subject: str, body: Any) -> int:
        return int(self.ask("POST", f"subjects/{subject}/versions", body)["id"])

    def refused(self, method: str, path: str, body: Any = None, **query: str) -> tuple[int, str]:
        with pytest.raises(RefusedRequest) as caught:
            self.ask(method, path, body, **query)
        return caught.value.code, str(caught.value)

    def code(self, method: str, path: str, body: Any = None, **query: str) -> int:
        return self.refused(method, path, body, **query)[0]


def test_alike_schemas_have_one_id_and_a_subject_has_each_once() -> None:
    registry = Registry()
    record = {"type": "record", "name": "R", "fields": [{"name": "x", "type": "int", "default": 1}]}
    spaced = {"schema": json.dumps(record, indent=4)}
    assert registry.put("a", spaced) == registry.put("b", {"schema": json.dumps(record)}) == 1
    assert registry.put("a", spaced) == 1
    assert registry.put("c", INT) == 2
    assert registry.ask("GET", "subjects") == ["a", "b", "c"]
    assert registry.ask("GET", "subjects", subjectPrefix="b") == ["b"]
    assert registry.ask("GET", "subjects/a/versions") == [1]
    found = registry.ask("GET", "subjects/a/versions/latest")
    assert found == {
        "subject": "a", "version": 1, "id": 1, "schema": json.dumps(record, separators=(",", ":")),
    }  # fmt: skip
    assert registry.ask("GET", "schemas/ids/1") == {"schema": found["schema"]}
    assert registry.ask("GET", "schemas/ids/1/subjects") == ["a", "b"]
    assert registry.ask("GET", "schemas/ids/1/versions")[1] == {"subject": "b", "version": 1}
    assert registry.ask("POST", "subjects/a", spaced) == found
    assert registry.code("POST", "subjects/a", LONG) == 40403
    assert registry.code("POST", "subjects/nobody", LONG) == 40401
    assert registry.code("GET", "schemas/ids/9") == 40403
    assert registry.code("GET", "subjects/a/versions/7") == 40402
    assert registry.code("GET", "subjects/a/versions/x") == 42202


def test_a_level_decides_what_may_follow() -> None:
    registry = Registry()
    assert registry.ask("GET", "config") == {"compatibilityLevel": "BACKWARD"}
    assert registry.code("GET", "config/a") == 40408
    assert registry.ask("GET", "config/a", defaultToGlobal="true") == {"compatibilityLevel": "BACKWARD"}
    registry.put("a", INT)
    assert registry.put("a", LONG) == 2
    code, said = registry.refused("POST", "subjects/a/versions", INT | {"schema": '"boolean"'})
    assert (code, "whose level is BACKWARD: the value is written as long and read as boolean" in said) == (
        409, True,
    )  # fmt: skip
    test = "compatibility/subjects/a/versions"
    assert registry.ask("POST", f"{test}/latest", TEXT) == {"is_compatible": False}
    assert registry.ask("POST", f"{test}/1", {"schema": '"float"'}) == {"is_compatible": True}
    assert registry.ask("POST", test, TEXT, verbose="true")["messages"]
    assert registry.ask("POST", "compatibility/subjects/new/versions", TEXT) == {"is_compatible": True}
    assert registry.ask("PUT", "config/a", {"compatibility": "none"}) == {"compatibility": "NONE"}
    assert registry.put("a", TEXT) == 3
    assert registry.ask("DELETE", "config/a") == {"compatibility": "NONE"}
    assert registry.code("POST", "subjects/a/versions", {"schema": '"boolean"'}) == 409
    registry.ask("PUT", "config", {"compatibility": "BACKWARD_TRANSITIVE"})
    assert registry.code("POST", "subjects/a/versions", {"schema": '"bytes"'}) == 409  # version 2 is a number
    assert registry.code("PUT", "config", {"compatibility": "SIDEWAYS"}) == 42203


def test_what_is_deleted_is_hidden_first_and_its_id_stays() -> None:
    registry = Registry()
    registry.put("a", INT)
    registry.put("a", LONG)
    assert registry.code("DELETE", "subjects/a", permanent="true") == 40407
    assert registry.ask("DELETE", "subjects/a/versions/1") == 1
    assert registry.ask("GET", "subjects/a/versions") == [2]
    assert registry.ask("GET", "subjects/a/versions", deleted="true") == [1, 2]
    assert registry.code("GET", "subjects/a/versions/1") == 40402
    assert registry.ask("DELETE", "subjects/a") == [2]
    assert registry.ask("GET", "subjects") == []
    assert registry.put("a", INT) == 1, "the same schema, the same id"
    assert registry.ask("GET", "subjects/a/versions") == [3]
    assert registry.ask("DELETE", "subjects/a") == [3]
    assert registry.ask("DELETE", "subjects/a", permanent="true") == [1, 2, 3]
    assert registry.code("GET", "subjects/a/versions", deleted="true") == 40401
    assert registry.ask("GET", "schemas/ids/2") == {"schema": '"long"'}, "records may still have it"


def test_a_schema_may_refer_to_others() -> None:
    registry = Registry()
    place = {"type": "record", "name": "geo.Place", "fields": [{"name": "x", "type": "int"}]}
    trip = {"type": "record", "name": "Trip", "fields": [{"name": "to", "type": "geo.Place"}]}
    refers = [{"name": "geo.Place", "subject": "place", "version": 1}]
    body = {"schema": json.dumps(trip), "references": refers}
    code, said = registry.refused("POST", "subjects/trip/versions", body)
    assert (code, said) == (42201, "Invalid schema: there is no version 1 of place")
    registry.put("place", {"schema": json.dumps(place)})
    latest = [{**refers[0], "version": -1}]
    assert registry.put("trip", {**body, "references": latest}) == registry.put("trip", body)
    assert registry.ask("GET", "subjects/trip/versions/1")["references"] == refers
    assert registry.ask("GET", "subjects/place/versions/1/referencedby") == [2]
    assert registry.code("DELETE", "subjects/place") == 42206
    registry.ask("DELETE", "subjects/trip")
    assert registry.ask("DELETE", "subjects/place") == [1]


def test_json_schemas_and_protobuf_are_compared_by_their_fields() -> None:
    from google.protobuf import descriptor_pb2

    def file(kind: int) -> dict[str, str]:
        made = descriptor_pb2.FileDescriptorProto(name="x.proto", syntax="proto3")
        made.message_type.add(name="M").field.add(name="x", number=1, type=kind, label=1)
        return {"schema": base64.b64encode(made.SerializeToString()).decode(), "schemaType": "PROTOBUF"}

    registry = Registry()
    optional = {"type": "object", "properties": {"x": {"type": "integer"}}}
    registry.put("j", {"schema": json.dumps(optional), "schemaType": "JSON"})
    required = {"schema": json.dumps({**optional, "required": ["x"]}), "schemaType": "JSON"}
    assert "is required and was not" in registry.refused("POST", "subjects/j/versions", required)[1]
    assert registry.code("POST", "subjects/j/versions", INT) == 409  # another type
    registry.put("p", file(5))
    assert registry.put("p", file(3))
    assert registry.code("POST", "subjects/p/versions", file(9)) == 409
    text = {"schema": 'syntax = "proto3"; message M { string x = 1; }', "schemaType": "PROTOBUF"}
    assert registry.put("text", text)
    assert registry.ask("GET", "subjects/text/versions/1/schema") == text["schema"]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (None, "no field 'schema'"),
        ({"schema": "nonsense"}, "this is no Avro schema"),
        ({"schema": "7", "schemaType": "JSON"}, "must be an object"),
        ({"schema": "{", "schemaType": "JSON"}, "Invalid schema"),
        ({"schema": "nonsense", "schemaType": "PROTOBUF"}, "this is no Protobuf schema"),
        ({"schema": "{}", "schemaType": "XML"}, "AVRO, JSON, PROTOBUF, not 'XML'"),
        ({"schema": '"int"', "references": [{"name": "x"}]}, "Invalid schema"),
        ({"schema": '"int"', "ruleSet": {"domainRules": []}}, "does not keep a schema's ruleSet"),
    ],
)
def test_what_is_no_schema_is_refused_and_nothing_is_kept(body: Any, said: str) -> None:
    registry = Registry()
    code, message = registry.refused("POST", "subjects/a/versions", body)
    assert (code, said in message) == (42201, True), message
    assert registry.kept == []


def test_what_is_not_known_is_said() -> None:
    registry = Registry()
    assert registry.ask("GET", "") == {}
    assert registry.ask("GET", "mode") == {"mode": "READWRITE"}
    assert registry.ask("GET", "contexts") == ["."]
    assert "AVRO" in registry.ask("GET", "schemas/types")
    for method, path in (("PUT", "mode"), ("POST", "associations"), ("GET", "subjects/a/metadata")):
        assert registry.refused(method, path)[0] == 404
