"""Message: what driver, slots and operators of a job say to each other is one of its kinds."""

from __future__ import annotations

import msgspec


class Message(msgspec.Struct, tag=True, gc=False):
    """A message; its type's name is the tag on the wire."""
