"""MemoryShare: the memory that the tables of a slot have together, in equal parts."""

from __future__ import annotations


class MemoryShare:
    """One thread."""

    def __init__(self, memory_bytes: int) -> None:
        self.memory_bytes = memory_bytes
        self._tables = 0

    def join(self) -> None:
        """One table more."""
        self._tables += 1

    @property
    def of_a_table(self) -> int:
        """How many bytes each may take."""
        return self.memory_bytes // max(1, self._tables)
