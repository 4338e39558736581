"""Which texts JSON can't write as they are."""

from __future__ import annotations

import pytest

from onceflow.runtime.kernels.ops import ops
from tests.unit.guarded_memory import before_closed_page

if not ops().are_compiled:
    pytest.skip("needs numba", allow_module_level=True)

from onceflow.runtime.kernels.text import has_escapes

ESCAPED = {*range(0x20), ord('"'), ord("\\")}


@pytest.mark.parametrize("size", [1, 31, 32, 33, 64, 70])
def test_each_byte_at_each_place(size: int) -> None:
    plain = b"x" * size
    with before_closed_page() as put:
        content = put(plain)
        assert not has_escapes(content.address, content.address + size)
        for byte in range(256):
            for at in range(size):
                content = put(plain[:at] + bytes([byte]) + plain[at + 1 :])
                assert has_escapes(content.address, content.address + size) == (byte in ESCAPED)
        content = put(b"x" * size + b'"')
        assert not has_escapes(content.address, content.address + size), "the end is not part of it"
        del content


def test_no_text_at_all() -> None:
    assert not has_escapes(0, 0)
