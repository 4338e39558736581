"""Live rows: what the operators of a slot remember of some keys now, for a question from outside.

The slot's own thread answers, between two steps: no operator is in the middle of a batch then, and what it
says includes all records that it has taken in, also those that no checkpoint has yet.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from onceflow.runtime.control.live_messages import AskRows, RowsOfKeys
from onceflow.runtime.control.messages import Assignment
from onceflow.runtime.errors import UsageError
from onceflow.runtime.operators.operator import Operator, PeekedOperator
from onceflow.runtime.state.asked_keys import AskedKeys
from onceflow.runtime.state_tables.live import as_bytes, live_shape, rows_of

ANSWER_BYTES_MAX = 16 << 20
"""What a slot sends at most: it may not hold up what the driver and it have to say to each other."""


def rows_of_keys(
    at: Assignment, operators: Mapping[str, Operator], asked: AskRows, bytes_max: int = ANSWER_BYTES_MAX
) -> RowsOfKeys:
    """The answer. What goes wrong is in it: a question never ends an attempt."""
    answer = RowsOfKeys(attempt=at.attempt, slot=at.slot, question=asked.question)
    try:
        answer.rows = _rows(operators[asked.uid], asked)
    except UsageError as error:
        answer.problem = str(error)
    except Exception as error:  # whatever a class of the user's raises when it becomes a column
        answer.problem = f"{type(error).__name__}: {error}"
    if len(answer.rows) > bytes_max:
        answer.problem = (
            f"the answer has {len(answer.rows):,} bytes, more than {bytes_max:,}: ask for fewer keys"
        )
        answer.rows = b""
    return answer


def _rows(operator: Operator, asked: AskRows) -> bytes:
    if not isinstance(operator, PeekedOperator):
        raise UsageError(
            f"{asked.uid!r} is a {asked.described.kind}, which has no live answers: leave --live out, then "
            "the answer is of the last completed checkpoint"
        )
    shape = live_shape({asked.uid: asked.described}, asked.uid, asked.state)
    (keys,) = pa.ipc.open_stream(asked.keys)
    return as_bytes(rows_of(shape, operator.peek(AskedKeys(keys))))
