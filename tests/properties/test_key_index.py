"""KeyIndex against a dict: any keys, hashes that collide, removals and compactions in between.

With kernels and without they are the same: rows and new rows are numbered alike.
"""

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from onceflow.runtime.kernels.ops import COMPILED, PLAIN, ops, using
from onceflow.runtime.state.heap.key_index import KeyIndex

# Few values for each half, and some that fall on the same place of the table: collisions are the rule.
HALVES = st.sampled_from([0, 1, 2, 1 << 20, 1 << 40, 1 << 63, (1 << 64) - 1, 2047, 2048])
KEYS = st.lists(st.tuples(HALVES, HALVES), max_size=60)


class IndexAgainstDict(RuleBasedStateMachine):
    """`names` is what a caller keeps by row; a key that was removed does not come back."""

    chosen = PLAIN

    def __init__(self) -> None:
        super().__init__()
        with using(self.chosen):
            self.index = KeyIndex()
        self.row_of: dict[tuple[int, int], int] = {}
        self.names: list[tuple[int, int]] = []
        self.gone: set[tuple[int, int]] = set()

    @rule(keys=KEYS)
    def find_or_add(self, keys):
        keys = [key for key in keys if key not in self.gone]
        hashes, checks = (np.array([key[i] for key in keys], np.uint64) for i in (0, 1))
        found = self.index.find_or_add(hashes, checks)
        new = [keys[row] for row in found.new.tolist()]
        assert found.first_new == len(self.names)
        assert new == list(dict.fromkeys(key for key in keys if key not in self.row_of))
        assert found.new.tolist() == [keys.index(key) for key in new]
        for i, key in enumerate(new):
            self.row_of[key] = found.first_new + i
        self.names += new
        assert found.rows.tolist() == [self.row_of[key] for key in keys]

    @rule(data=st.data())
    def remove(self, data):
        if self.row_of:
            keys = data.draw(st.lists(st.sampled_from(sorted(self.row_of)), unique=True))
            self.index.remove(np.array([self.row_of.pop(key) for key in keys], np.int64))
            self.gone.update(keys)

    @rule(data=st.data())
    def split(self, data):
        numbers = data.draw(st.lists(st.integers(-3, 3), min_size=len(self.names), max_size=len(self.names)))
        limit = data.draw(st.sampled_from([-4, 0, 2, 3]))
        within, lowest = self.index.split(np.array(numbers, np.int64), limit)
        live = sorted(self.row_of.values())
        others = [numbers[row] for row in live if numbers[row] > limit]
        assert within.tolist() == [row for row in live if numbers[row] <= limit]
        assert lowest == min(others, default=None)

    @rule()
    def compact(self):
        kept = self.index.compact()
        self.names = [self.names[row] for row in kept.tolist()]
        self.row_of = {key: row for row, key in enumerate(self.names)}
        self.gone.clear()

    @invariant()
    def agrees(self):
        assert len(self.index) == len(self.row_of)
        assert self.index.size == len(self.names)
        live = self.index.live_rows().all().tolist()
        assert live == sorted(self.row_of.values())
        assert [(int(self.index.hashes[s]), int(self.index.checks[s])) for s in live] == [
            self.names[s] for s in live
        ]


IndexAgainstDict.TestCase.settings = settings(max_examples=150, stateful_step_count=20, deadline=None)
TestIndexAgainstDict = IndexAgainstDict.TestCase


class KernelsAgainstDict(IndexAgainstDict):
    """The same with kernels."""

    chosen = COMPILED


KernelsAgainstDict.TestCase.settings = IndexAgainstDict.TestCase.settings
TestKernelsAgainstDict = pytest.mark.skipif(not ops().are_compiled, reason="needs numba")(
    KernelsAgainstDict.TestCase
)
