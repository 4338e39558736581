"""Jobs over records of the user's types in a test: as given, in functions and keys, across a restart."""

from __future__ import annotations

import enum
import json
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, Literal
from uuid import UUID

import pyarrow as pa
import pydantic
import pytest

from onceflow import Ctx, Job, KeyedProcess, MapState, Scale, ValueState
from onceflow.connectors.formats import Json
from onceflow.connectors.kafka import KafkaSource
from onceflow.runtime.errors import UsageError, UserFunctionError
from onceflow.sinks.kafka import KafkaSink
from onceflow.testing import harness, run
from onceflow.testing.topic import _as_bytes
from tests.unit.testing.jobs import NOWHERE


class Currency(enum.Enum):
    EUR = "eur"
    USD = "usd"


@dataclass(frozen=True)
class Paid:
    kind: Literal["paid"]
    amount: Annotated[Decimal, Scale(2)]


@dataclass(frozen=True)
class Refused:
    kind: Literal["refused"]


class Payment(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True)
    user: UUID
    currency: Currency = pydantic.Field(alias="theCurrency")
    outcome: Paid | Refused
    score: int = pydantic.Field(default=0, ge=0)


@dataclass(frozen=True)
class Total:
    currency: Currency
    total: Annotated[Decimal, Scale(2)]
    users: frozenset[UUID]
    last: Any


class Sum(KeyedProcess[Currency, Payment, Total]):
    total = ValueState("total", Annotated[Decimal, Scale(2)])  # type: ignore[arg-type]
    users = MapState("users", UUID, Payment)

    def process(self, payment: Payment, ctx: Ctx) -> Iterator[Total]:
        assert isinstance(ctx.key, Currency)
        paid = payment.outcome.amount if isinstance(payment.outcome, Paid) else Decimal(0)
        total = (self.total.get() or Decimal(0)) + paid
        self.total.set(total)
        self.users.put(payment.user, payment)
        yield Total(ctx.key, total, frozenset(self.users.keys()), {"score": payment.score})


def totals() -> Job:
    job = Job("totals")
    source = KafkaSource(bootstrap_servers=NOWHERE, topics=["payments"], value=Json(Payment))
    payments = job.source(source, uid="payments")
    made = payments.key_by("currency").process(Sum(), uid="sum")
    made.sink_to(KafkaSink(bootstrap_servers=NOWHERE, topic="totals"), uid="totals")
    return job


ANN, BOB = UUID(int=1), UUID(int=2)


def paid(user: UUID, amount: str, currency: Currency = Currency.EUR) -> Payment:
    return Payment(user=user, theCurrency=currency, outcome=Paid("paid", Decimal(amount)))


def test_records_of_models_go_through_a_job_and_a_restart() -> None:
    row = {"user": BOB, "currency": Currency.EUR, "outcome": Refused("refused"), "score": 3}
    with run(totals(), payments=[paid(ANN, "1.50"), row]) as job:
        job.checkpoint().crash(parallelism=2)
        outcome = {"kind": "paid", "paid": {"kind": "paid", "amount": 2}}
        row = {"user": str(ANN), "currency": "eur", "outcome": outcome, "score": 1}
        job.push(payments=pa.Table.from_pylist([row], schema=Json(Payment).schema))
        assert job.records("totals", Total) == [
            Total(Currency.EUR, Decimal("1.50"), frozenset({ANN}), {"score": 0}),
            Total(Currency.EUR, Decimal("1.50"), frozenset({ANN, BOB}), {"score": 3}),
            Total(Currency.EUR, Decimal("3.50"), frozenset({ANN, BOB}), {"score": 1}),
        ]


def test_a_process_alone_has_keys_of_its_type() -> None:
    alone = harness(Sum(), key="currency")
    alone.element(paid(ANN, "1.00"), at=0).element(paid(ANN, "2.00", Currency.USD), at=1)
    assert [total.currency for total in alone.out] == [Currency.EUR, Currency.USD]


def test_what_is_no_record_of_the_type_is_said_when_it_is_given() -> None:
    wrong = {"user": BOB, "currency": Currency.EUR, "outcome": Refused("refused"), "score": -1}
    with pytest.raises(UsageError, match=r"source 'payments', row 0: .* field 'score': Input should be"):
        run(totals(), payments=[wrong])
    unchecked = Payment.model_construct(user=BOB, currency="eur", outcome=Refused("refused"), score=0)
    with pytest.raises(UsageError, match=r"row 0: field 'currency' is declared Currency but is 'eur'"):
        run(totals(), payments=[unchecked])


def test_a_validator_that_fails_in_a_job_names_the_record() -> None:
    unchecked = Payment.model_construct(user=BOB, currency=Currency.EUR, outcome=Refused("refused"), score=-1)
    with (
        pytest.raises(UserFunctionError, match=r"operator 'sum': Payment can't be made of .*field 'score'"),
        run(totals(), payments=[unchecked]) as job,
    ):
        job.finish()


def test_records_are_produced_as_json_writes_them() -> None:
    value = json.loads(_as_bytes(paid(ANN, "1.50")) or b"")
    assert value == {
        "user": str(ANN),
        "theCurrency": "eur",
        "outcome": {"kind": "paid", "amount": 1.5},
        "score": 0,
    }
