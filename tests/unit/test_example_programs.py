"""The examples without a broker: what each makes of its input, and that crashes change nothing.

On a real Kafka they run in tests/integration/test_examples.py.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar
from urllib.parse import unquote

import pytest

from examples import (
    avro_totals,
    deduplicate,
    enrich_http,
    join,
    sessions,
    totals_to_postgres,
    word_count_list,
)
from examples.deduplicate import Click
from examples.enrich_http import Enriched, Purchase
from examples.join import Order, Paid, Payment
from examples.sessions import View, Visit
from onceflow.runtime.errors import Retryable
from onceflow.testing import run, simulate

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000


def test_words_of_a_list() -> None:
    assert word_count_list.counts_of(["to be, or", "not to be"]) == {"to": 2, "be": 2, "or": 1, "not": 1}


# --- A join ---


def test_a_payment_within_the_hour_finds_its_order_whichever_comes_first() -> None:
    with run(join.build([]), orders=[Order("a", "tea", 0)]) as job:
        job.push(payments=[Payment("b", 7, 10), Payment("a", 5, MINUTE)])
        job.restart(parallelism=2)
        job.push(orders=[Order("b", "cup", 20)])
        assert job.records("paid", Paid) == [Paid("a", "tea", 5, MINUTE), Paid("b", "cup", 7, -10)]
        job.advance_to("1 d")
        assert job.rows("unpaid") == []


def test_an_order_is_unpaid_when_both_topics_have_come_an_hour_further() -> None:
    with run(join.build([]), orders=[Order("a", "tea", 0)], payments=[Payment("z", 1, 0)]) as job:
        job.advance_to(HOUR, source="orders")
        assert job.rows("unpaid") == []
        job.advance_to(HOUR, source="payments")
        assert job.records("unpaid", Order) == [Order("a", "tea", 0)]
        assert [row for row in job.state("join") if row["left"]] == []
        job.push(payments=[Payment("a", 5, HOUR + MINUTE)])
        assert job.rows("paid") == []


def test_crashes_change_nothing_of_a_join() -> None:
    orders = [Order(f"o{n}", "tea", n * 1_000) for n in range(6)]
    payments = sorted((Payment(f"o{n}", n, n % 3 * HOUR // 2) for n in range(6)), key=lambda p: p.ts)
    report = simulate(join.build([]), {"orders": orders, "payments": payments}, seeds=20)
    assert report.rows == {"paid": 6, "unpaid": 0}


# --- Deduplication ---


def test_a_click_passes_once_in_a_day() -> None:
    with run(
        deduplicate.build([]), clicks=[Click("a", "/", 0), Click("b", "/", 5), Click("a", "/", 0)]
    ) as job:
        job.restart(parallelism=2)
        job.push(clicks=[Click("b", "/", 5), Click("a", "/", 0)])
        assert job.rows("clicks-once") == [
            {"click_id": "a", "page": "/", "ts": 0},
            {"click_id": "b", "page": "/", "ts": 5},
        ]
        job.advance_to(DAY + 5)
        assert job.state("once") == []
        job.push(clicks=[Click("a", "/", DAY + 6), Click("a", "/", DAY + 6)])
        assert [row["click_id"] for row in job.rows("clicks-once")] == ["a", "b", "a"]


# --- Sessions ---


def test_views_in_any_order_make_the_same_visits() -> None:
    views = [View("ann", "/", minute * MINUTE) for minute in (40, 0, 20, 50, 10)]
    with run(sessions.build([]), views=views) as job:
        job.advance_to(80 * MINUTE - 1)
        assert job.rows("visits") == []
        job.restart(parallelism=2)
        job.advance_to(80 * MINUTE)
        assert job.records("visits", Visit) == [Visit("ann", 0, 50 * MINUTE, 5)]
        job.push(views=[View("ann", "/", 130 * MINUTE), View("ann", "/", 100 * MINUTE)])
        job.finish()
        assert job.records("visits", Visit)[1:] == [
            Visit("ann", 100 * MINUTE, 100 * MINUTE, 1),
            Visit("ann", 130 * MINUTE, 130 * MINUTE, 1),
        ]


# --- Enrichment ---


class Service(BaseHTTPRequestHandler):
    """Knows some users, is busy for one, and answers nonsense for another."""

    ANSWERS: ClassVar = {
        "ann lee": (200, {"country": "NZ"}),
        "odd": (200, ["no object"]),
        "busy": (503, {}),
    }

    def do_GET(self) -> None:
        code, body = self.ANSWERS.get(unquote(self.path.rpartition("/")[2]), (404, {}))
        self.send_response(code)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def service() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Service)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/users"
    server.shutdown()
    thread.join()
    server.server_close()


def test_what_the_service_refuses_is_apart(service: str) -> None:
    purchases = [Purchase("ann lee", 5), Purchase("nobody", 7), Purchase("odd", 9)]
    with run(enrich_http.build(["--service", service]), purchases=purchases) as job:
        job.finish()
        assert job.committed("enriched") == [{"user": "ann lee", "amount": 5, "country": "NZ"}]
        nobody, odd = job.committed("refused")
        assert nobody == {"user": "nobody", "amount": 7, "error": "HTTPError: HTTP Error 404: Not Found"}
        assert (odd["user"], odd["error"].split(":")[0]) == ("odd", "TypeError")


def test_a_busy_service_is_asked_again(service: str) -> None:
    ask = enrich_http.CountryOf(service)
    assert ask(Purchase("ann lee", 5)) == Enriched("ann lee", 5, "NZ")
    with pytest.raises(Retryable, match="says 503"):
        ask(Purchase("busy", 5))


def test_a_service_that_is_away_is_asked_again() -> None:
    with socket.socket() as bound_and_silent:
        bound_and_silent.bind(("127.0.0.1", 0))
        ask = enrich_http.CountryOf(f"http://127.0.0.1:{bound_and_silent.getsockname()[1]}")
        with pytest.raises(Retryable, match="can't be reached"):
            ask(Purchase("ann", 5))


# --- Avro ---


def test_totals_for_a_table() -> None:
    rows = [{"user": "ann", "amount": 5, "ts": 0}, {"user": "ann", "amount": 7, "ts": 10_000}]
    with run(totals_to_postgres.build([]), purchases=rows) as job:
        job.finish()
        found = [(row["window_end"], row["count"], row["total"]) for row in job.committed("totals")]
        assert sorted(found) == [(10_000, 1, 5), (20_000, 1, 7)]


def test_totals_by_user_and_shop() -> None:
    rows = [
        {"user": "ann", "amount": 5, "ts": 0, "shop": "none"},
        {"user": "ann", "amount": 7, "ts": 1, "shop": "s"},
    ]
    with run(avro_totals.build([]), purchases=rows) as job:
        job.finish()
        assert sorted((row["shop"], row["total"]) for row in job.committed("totals")) == [
            ("none", 5),
            ("s", 7),
        ]
