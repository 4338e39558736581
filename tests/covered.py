"""Covered: what a module without a test file of its own name says of itself."""

from __future__ import annotations

from typing import NamedTuple


class Covered(NamedTuple):
    """Some modules, the tests in whose reach they are, and why they have none of their own."""

    why: str
    tests: str
    modules: str
