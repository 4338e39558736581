"""A format of your own: pairs of a name and a number, as in b"ann=3"."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from onceflow.connectors.formats import BadValue, Decoded, Values
from onceflow.runtime.errors import GraphError
from onceflow.testing.kit import FormatKit

PAIR = pa.schema([("name", pa.string()), ("count", pa.int64())])


@dataclass(frozen=True)
class Pairs:
    schema: pa.Schema = PAIR
    record_type: type | None = None

    def decoder(self, columns: frozenset[str] | None = None) -> "PairDecoder":
        names = PAIR.names if columns is None else columns
        return PairDecoder(pa.schema([field for field in PAIR if field.name in names]))

    def encoder(self, schema: pa.Schema) -> "PairEncoder":
        if missing := set(PAIR.names) - set(schema.names):
            raise GraphError(f"a pair needs the columns {sorted(missing)}: select them")
        return PairEncoder()


@dataclass(frozen=True)
class PairDecoder:
    schema: pa.Schema

    def decode(self, values: Values) -> Decoded:
        given = pa.array(values, pa.binary()).to_pylist()
        rows, good, bad = [], [], []
        for place, value in enumerate(given):
            try:
                name, count = (value or b"").decode().split("=")
                rows.append({"name": name, "count": np.int64(int(count)).item()})
                good.append(place)
            except (ValueError, OverflowError) as error:
                bad.append(BadValue(place, f"no pair: {error}"))
        batch = pa.RecordBatch.from_pylist(rows, PAIR).select(self.schema.names)
        return Decoded(batch, np.array(good, np.int64), bad)


class PairEncoder:
    def encode(self, batch: pa.RecordBatch) -> pa.Array:
        pairs = [f"{row['name']}={row['count']}" for row in batch.to_pylist()]
        return pa.array([pair.encode() for pair in pairs], pa.binary())


class TestPairs(FormatKit):
    def format(self) -> Pairs:
        return Pairs()

    def rows(self) -> pa.RecordBatch:
        rows = [{"name": name, "count": len(name)} for name in ("", "ann", "bob, ß")]
        return pa.RecordBatch.from_pylist(rows, PAIR)

    def bad(self) -> Sequence[bytes]:
        return [b"", b"ann", b"ann=x", b"a=b=1", b"\xff=1"]
