"""Objects of the user's as pickles, for a state that asks for it by name. Nothing else in a checkpoint is
one: who can write a pickle can run code in whoever reads it."""

from __future__ import annotations

import io
import pickle
from typing import Any


class PickledObjects:
    """Pickle, where the declared class stands for itself: an object that is read is of the program's class,
    wherever its module is called otherwise or is not there at all."""

    def __init__(self, of: Any) -> None:
        self._of = of

    def encode(self, value: Any) -> bytes:
        file, of = io.BytesIO(), self._of

        class Pickler(pickle.Pickler):
            def persistent_id(self, obj: Any) -> Any:
                return "declared" if obj is of else None

        Pickler(file, protocol=5).dump(value)
        return file.getvalue()

    def decode(self, content: bytes) -> Any:
        of = self._of

        class Unpickler(pickle.Unpickler):
            def persistent_load(self, pid: Any) -> Any:
                return of

        return Unpickler(io.BytesIO(content)).load()
