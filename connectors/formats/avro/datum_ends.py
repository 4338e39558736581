"""Where datums end that lie one behind the other, as in the blocks of a file: by a compiled loop for flat
records, where kernels are on, else by skipping each."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from onceflow.connectors.formats.avro.plan import skipped
from onceflow.connectors.formats.avro.rows import datum_ends
from onceflow.connectors.formats.avro.schema.nodes import Node
from onceflow.connectors.formats.format import NotFlatError
from onceflow.runtime.kernels.ops import ops
from onceflow.runtime.records import Int64s

DatumEnds = Callable[[bytes, int], Int64s]
"""(datums one behind the other, how many) to where each ends. It raises BadDatumError if they are not as many
whole ones."""


def quick_datum_ends(writer: Node) -> DatumEnds:
    """A function that finds where datums of this schema end. What a loop is not sure of is judged by
    `datum_ends`."""
    judge = datum_ends(writer)

    def judged(datums: bytes, count: int) -> Int64s:
        return np.array(judge(datums, count), np.int64)

    if writer.kind != "record" or not ops().are_compiled:
        return judged
    from onceflow.connectors.formats.avro.compiled.decode import FlatWalk  # it compiles loops

    try:
        walk = FlatWalk(skipped(writer))
    except NotFlatError:
        return judged

    def ends(datums: bytes, count: int) -> Int64s:
        found = walk.ends(datums, count)
        return judged(datums, count) if found is None else found

    return ends
