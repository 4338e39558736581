"""The order of numbers: what np.argsort says, sooner."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def stable_order(numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The places of these numbers, lowest number first, equal ones in their order: np.argsort with
    kind="stable", which takes up to ten times as long. Number and place are sorted as one word, for which
    NumPy has vector instructions; where both have no room in one, np.argsort is asked."""
    if not len(numbers):
        return np.zeros(0, np.int64)
    bits = len(numbers).bit_length()
    lowest = int(numbers.min())
    if int(numbers.max()) - lowest >= 1 << (63 - bits):
        return np.argsort(numbers, kind="stable")
    words = np.subtract(numbers, lowest, dtype=np.int64)
    words <<= bits
    words |= np.arange(len(numbers))
    words.sort()
    words &= (1 << bits) - 1
    return words
