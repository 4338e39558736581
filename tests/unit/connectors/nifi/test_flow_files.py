"""Flow files as NiFi packs them: the bytes, and what is torn."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceflow.connectors.nifi.flow_files import FlowFile, TornPacket, packed, unpacked

TEXTS = st.text(max_size=5)
FILES = st.lists(
    st.builds(FlowFile, st.dictionaries(TEXTS, TEXTS, max_size=3), st.binary(max_size=20)), max_size=4
)
BYTES = b"\0\0\0\x01\0\0\0\x04uuid\0\0\0\x01a\0\0\0\0\0\0\0\x02hi"


def test_the_bytes_are_those_of_nifi() -> None:
    assert [*unpacked(BYTES + BYTES)] == [FlowFile({"uuid": "a"}, b"hi")] * 2
    assert packed(FlowFile({"uuid": "a"}, b"hi")) == BYTES


@given(FILES)
def test_what_is_packed_is_unpacked(files: list[FlowFile]) -> None:
    assert [*unpacked(b"".join(map(packed, files)))] == files


@pytest.mark.parametrize("length", range(1, len(BYTES)))
def test_what_ends_within_a_flow_file_is_torn(length: int) -> None:
    with pytest.raises(TornPacket, match="end within the flow file"):
        [*unpacked(BYTES[:length])]


def test_a_length_below_zero_is_torn() -> None:
    with pytest.raises(TornPacket):
        [*unpacked(b"\0\0\0\x01\xff\xff\xff\xff" + BYTES)]
