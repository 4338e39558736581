"""A decimal column has a scale, and a renamed field its former name in state that was kept; what other types
become is in the table of docs/types.md."""

from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated

from onceflow import FormerName, Job, Scale


@dataclass(frozen=True)
class Payment:
    user: Annotated[str, FormerName("customer")]
    amount: Annotated[Decimal, Scale(2)]


job = Job("payments")
payments = job.from_elements(
    Payment("ann", Decimal("2.50")), Payment("ann", Decimal("0.25"))
)
rows = payments.filter(lambda payment: payment.amount > 1).collect()
job.run(master="threads[1]")
assert rows == [Payment("ann", Decimal("2.50"))]
