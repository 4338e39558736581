"""Through all values of a batch at once, to where the scalars of their shape are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from onceflow.connectors.formats.json_shape import NO_COLUMN, Scalar, Shape
from onceflow.connectors.formats.json_texts import Texts
from onceflow.runtime.records import Int64s, Mask

_GUESS_MAX = 64
"""Bytes of a scalar; the length of longer ones varies."""
_RUN_MAX = 512
"""A run that is longer ends at the next scalar: each value's part of it is copied."""
_WRONG_SHARE = 0.01
"""Of the values that are left; where a guess is wrong for more, it is given up."""
_BLOCK_BYTES = 128 << 10
"""Of a run, in the values that are looked at at once: what comes of them stays in the processor's cache."""
_SAME, _AS_LONG, _VARIES = range(3)
"""Guesses about a scalar: it is the same in all values; it is as long; neither."""


class Run:
    """Texts of a shape, and between them scalars about which there is a guess."""

    def __init__(self, first: int) -> None:
        """`first`: of the scalars that may be in it."""
        self.first = first
        self.content = b""
        self.begins: list[int] = []
        """Where each scalar in it begins."""
        self.unknown: list[tuple[int, int, int]] = []
        """Those that may differ: which, where it begins and ends."""
        self._tiles = np.zeros((3, 0), np.uint8)
        """For the values of a block its content and where that is known, and room."""

    def add(self, scalar: int, content: bytes, is_same: bool) -> None:
        self.begins.append(len(self.content))
        if not is_same:
            self.unknown.append((scalar, len(self.content), len(self.content) + len(content)))
        self.content += content

    @property
    def block(self) -> int:
        """So many values are looked at at once."""
        return max(_BLOCK_BYTES // len(self.content), 1)

    def differs(self, found: npt.NDArray[np.void]) -> Mask | None:
        """What was found, no more than a block, byte by byte whether it is not the run's; None: nowhere."""
        if not self._tiles.size:
            is_known = bytearray(b"\x01" * len(self.content))
            for _, begin, end in self.unknown:
                is_known[begin:end] = bytes(end - begin)
            tiles = [np.frombuffer(part * self.block, np.uint8) for part in (self.content, is_known)]
            self._tiles = np.stack([*tiles, tiles[0]])
        content, known, room = self._tiles[:, : len(found) * len(self.content)]
        marks = np.not_equal(found.view(np.uint8), content, out=room.view(np.bool_))
        marks &= known.view(np.bool_)
        return marks.reshape(len(found), -1) if marks.any() else None

    def wrong_guess(self, differs: Mask, count: int) -> int | None:
        """The scalar about which the guess is wrong. `count`: of all values that are to be looked at."""
        firsts = differs[differs.any(axis=1)].argmax(axis=1)
        guesses = np.searchsorted(self.begins, firsts, "right") - 1
        wrong = np.bincount(guesses[guesses >= 0], minlength=1)
        is_often = wrong.max() > _WRONG_SHARE * min(count, self.block)
        return self.first + int(wrong.argmax()) if is_often else None


class Guesses:
    """What scalars of a shape have in common in all values; corrected by what batches show."""

    def __init__(self, shape: Shape, others: Sequence[Shape]) -> None:
        """`others`: of more values; what is not of this shape is left out."""
        self.shape = shape
        self.runs: list[Run] = []
        """Of the whole shape; before each but the first lies a scalar whose length varies."""
        like = [shape.scalars, *(other.scalars for other in others if other.texts == shape.texts)]
        self._guesses = [_guess(scalars) for scalars in zip(*like, strict=True)]
        self._divide()

    @property
    def ahead(self) -> int:
        """Up to so many bytes from where a value ends are looked at."""
        return sum(len(run.content) for run in self.runs)

    def give_up(self, scalar: int) -> None:
        """The guess is wrong."""
        self._guesses[scalar] += 1
        self._divide()

    def _divide(self) -> None:
        self.runs = [Run(0)]
        self.runs[0].content = self.shape.texts[0]
        for i, (scalar, text) in enumerate(zip(self.shape.scalars, self.shape.texts[1:], strict=True)):
            is_guessed = self._guesses[i] == _SAME or 0 < len(scalar.content) <= _GUESS_MAX
            if self._guesses[i] == _VARIES or not is_guessed or len(self.runs[-1].content) > _RUN_MAX:
                self.runs.append(Run(i + 1))
            else:
                self.runs[-1].add(i, scalar.content, self._guesses[i] == _SAME)
            self.runs[-1].content += text


def _guess(scalars: Sequence[Scalar]) -> int:
    """About one scalar, as it is in several values."""
    if scalars[0].column == NO_COLUMN and all(scalar.content == scalars[0].content for scalar in scalars):
        return _SAME
    return _AS_LONG if all(len(scalar.content) == len(scalars[0].content) for scalar in scalars) else _VARIES


class Walk:
    """Over the values that are of a shape, as far as it shows without a look at the scalars themselves.

    What is guessed is safe: all texts of the shape are there, one behind the other to the value's end, and
    whoever asks for the unread scalars sees whether what lies between two of these texts is one, and only
    one. A scalar that is the same as in the shape is a good one.
    """

    def __init__(self, texts: Texts, rows: Int64s, guesses: Guesses) -> None:
        """`rows`: the values that are there. `texts` lets look as far ahead as `guesses` want to."""
        self._texts = texts
        self.rows = rows
        """The values that are of the shape."""
        self._scalars: dict[int, list[npt.NDArray[Any]]] = {}
        """Of those that are unread, where it begins and ends in each row, or, if it is as long, all of it."""
        is_all = len(rows) == len(texts.begins)
        self._at = texts.begins if is_all else texts.begins[rows]
        self._ends = texts.ends if is_all else texts.ends[rows]
        self._follow(guesses)

    def pieces(self, scalar: int) -> pa.Array:
        """What it is in each row, of which there is one at least: strings, not known to be UTF-8."""
        places = self._scalars[scalar]
        if len(places) == 2:
            return self._texts.pieces(*places)
        length = places[0].itemsize
        ends = pa.py_buffer(np.arange(0, (len(self.rows) + 1) * length, length, dtype=np.int32))
        return pa.Array.from_buffers(pa.string(), len(self.rows), [None, ends, pa.py_buffer(places[0])])

    def unread(self) -> list[int]:
        """The scalars of which it is not known whether they are good ones."""
        return list(self._scalars)

    def keep(self, chosen: Mask) -> None:
        """Leave the other rows out."""
        if chosen.all():
            return
        self.rows, self._at, self._ends = self.rows[chosen], self._at[chosen], self._ends[chosen]
        for scalar, places in self._scalars.items():
            self._scalars[scalar] = [array[chosen] for array in places]

    def _follow(self, guesses: Guesses) -> None:
        done = 0
        while done < len(guesses.runs):
            first = guesses.runs[done].first
            if first > 0:
                begins, self._at = self._at, self._texts.find(guesses.runs[done].content[0], self._at)
                self._scalars[first - 1] = [begins, self._at]
                self.keep(self._at <= self._ends)
            while (wrong := self._pass(guesses.runs[done])) is not None:
                guesses.give_up(wrong)  # which changes this run and later ones
            done += 1
        self.keep(self._at == self._ends)

    def _pass(self, run: Run) -> int | None:
        """Over a run; nothing is done if a guess in it is wrong: about which scalar."""
        count, length = len(self._at), len(run.content)
        cells = [np.empty(count, f"V{end - begin}") for _, begin, end in run.unknown]
        is_same = np.ones(count, np.bool_)
        for first in range(0, count, run.block):
            block = slice(first, first + run.block)
            found = self._texts.at(self._at[block], length)
            differs = run.differs(found)
            if differs is not None:
                wrong = run.wrong_guess(differs, count)
                if wrong is not None:
                    return wrong
                is_same[block] = ~differs.any(axis=1)
            for each, (_, begin, _) in zip(cells, run.unknown, strict=True):
                each[block] = np.ndarray(len(found), each.dtype, found, begin, (length,))
        self._scalars |= {scalar: [each] for each, (scalar, _, _) in zip(cells, run.unknown, strict=True)}
        self._at = self._at + length
        self.keep(is_same & (self._at <= self._ends))
        return None
