"""Which message a path of numbers means, in the text of a .proto file and in a descriptor."""

from __future__ import annotations

import base64

import pytest
from google.protobuf import descriptor_pb2

from onceflow.connectors.formats.protobuf.message_names import message_names
from onceflow.runtime.errors import OptionError
from tests.protobuf_messages import descriptor_set

PROTO = """// message Comment {
/* message Comment { } */
syntax = "proto2";
package shop.v1;
option java_package = "message Text {";
enum Kind { NONE = 0; }
message First {
  optional string message = 1 [default = "{"];
  map<string, int32> counts = 2;
  oneof of { First.Inner one = 3; string two = 4; }
  message Inner { message Innermost { } }
  optional group Result = 5 { optional int32 x = 1; }
  extensions 100 to 199;
}
extend First { optional int32 more = 100; }
message Second { }
service Shop { rpc Buy (First) returns (Second) { } }
"""
DESCRIPTOR = (
    descriptor_pb2.FileDescriptorSet.FromString(descriptor_set(("all.proto", PROTO)))
    .file[0]
    .SerializeToString()
)


@pytest.mark.parametrize("text", [PROTO, base64.b64encode(DESCRIPTOR).decode()], ids=["text", "base64"])
@pytest.mark.parametrize(
    ("path", "names"),
    [
        ([0], {"shop.v1.First"}),
        ([1], {"shop.v1.Second"}),
        ([2], set()),
        ([0, 0], {"shop.v1.First.Inner"}),  # by those who don't count the entries of maps
        ([0, 1], {"shop.v1.First.Inner", "shop.v1.First.Result"}),
        ([0, 0, 0], {"shop.v1.First.Inner.Innermost"}),
        ([0, 2], {"shop.v1.First.Result"}),
        ([0, 3], set()),
        ([], set()),
    ],
)
def test_a_path_means_the_message_that_is_there(text: str, path: list[int], names: set[str]) -> None:
    assert message_names(text).at(path) == names


def test_a_file_without_a_package_has_short_names() -> None:
    assert message_names('syntax = "proto3"; message A { message B {} }').at([0, 0]) == {"A.B"}


@pytest.mark.parametrize("text", ["message A {", "message A {}}", "no proto!", "{}", "AAAA"])
def test_what_is_no_schema_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match="this is no"):
        message_names(text)
