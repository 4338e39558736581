"""MessageRows: how messages of a source become rows, and what becomes of those that can't be decoded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from onceflow.connectors.bad_records import bad_record_error
from onceflow.connectors.formats import Decoded, Decoder
from onceflow.runtime.contracts import DEAD_LETTER_SCHEMA
from onceflow.runtime.records import Int64s, Kinds


class Letter(NamedTuple):
    """Where a message came from, for its dead letter and for people."""

    what: str
    """"message 'm1' of q"."""
    topic: str
    partition: int
    offset: int
    key: bytes | None


class MadeRows(NamedTuple):
    """What became of some messages."""

    batch: pa.RecordBatch
    kept: Int64s
    """Which messages the rows are of."""
    kinds: Kinds | None
    dead_letters: pa.RecordBatch | None


@dataclass(frozen=True, slots=True)
class MessageRows:
    """How bodies of messages become rows of a source."""

    schema: pa.Schema
    """The columns of the rows: the decoder's, and what is known of a message beside its body."""
    decoder: Decoder
    tolerates_bad: bool
    """Whether what can't be decoded is a dead letter."""

    def of(
        self,
        bodies: Sequence[bytes],
        beside: Callable[[Sequence[int]], Sequence[pa.Array]],
        letter: Callable[[int], Letter],
    ) -> MadeRows:
        """Decode them. `beside(kept)`: the columns that come after the decoder's; `letter(number)`: of one
        message. Raises BadRecordError if one can't be decoded and that is not tolerated."""
        decoded = self.decoder.decode(bodies)
        dead_letters = self._dead_letters(bodies, letter, decoded)
        kept = np.arange(len(bodies)) if decoded.rows is None else decoded.rows
        batch = decoded.batch
        if added := beside(kept.tolist()):
            batch = pa.RecordBatch.from_arrays([*batch.columns, *added], schema=self.schema)
        elif batch.num_columns:
            batch = pa.RecordBatch.from_arrays(batch.columns, schema=self.schema)
        return MadeRows(batch, kept.astype(np.int64), decoded.kinds, dead_letters)

    def _dead_letters(
        self, bodies: Sequence[bytes], letter: Callable[[int], Letter], decoded: Decoded
    ) -> pa.RecordBatch | None:
        if not decoded.bad:
            return None
        if not self.tolerates_bad:
            bad = decoded.bad[0]
            raise bad_record_error(letter(bad.row).what, bad.reason, bodies[bad.row])
        letters = [
            {
                "topic": of.topic,
                "partition": of.partition,
                "offset": of.offset,
                "key": of.key,
                "value": bodies[bad.row],
                "reason": bad.reason,
                "stage": "value",
            }
            for bad in decoded.bad
            for of in [letter(bad.row)]
        ]
        return pa.RecordBatch.from_pylist(letters, schema=DEAD_LETTER_SCHEMA)
