"""Look-ups in a real PostgreSQL, which goes away meanwhile, and over HTTP."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from onceflow import Job, errors_to
from onceflow.connectors.http_lookup import HttpLookup
from onceflow.connectors.postgres.lookup import PostgresLookup
from onceflow.runtime.errors import UsageError
from onceflow.testing import run
from tests.postgres_server import PostgresServer

pytestmark = pytest.mark.postgres


@dataclass(frozen=True)
class Sale:
    id: int
    user: str
    shop: int = 1


@dataclass(frozen=True)
class User:
    name: str
    shop: int
    country: str | None


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        server.execute(
            "CREATE TABLE users (name text, shop int, country text)",
            "INSERT INTO users SELECT 'u' || n, n % 2, 'c' || n FROM generate_series(0, 999) n",
            "INSERT INTO users VALUES ('two', 1, 'a'), ('two', 1, 'b'), ('null', 1, NULL)",
        )
        yield server


def test_many_rows_are_joined_with_a_table_by_one_key_and_by_two(server: PostgresServer) -> None:
    job = Job("sales")
    sales = job.from_elements(Sale(0, "u0"), uid="sales")
    one = PostgresLookup(server.url, "public.users", User, key="name")
    sales.lookup_join(one, on="user", how="left", cache=(100, "1 min")).print(uid="one")
    two = PostgresLookup(server.url, "users", User, key=["name", "shop"], keys_at_once=7)
    sales.lookup_join(two, on=["user", "shop"]).print(uid="two")
    rows = [Sale(n, f"u{n % 1_200}") for n in range(2_000)] + [Sale(9_000, "two"), Sale(9_001, "null")]
    with run(job, sales=rows) as test:
        by_one = [(row["id"], row["country"]) for row in test.rows("one")]
        found = [(n, f"c{n % 1_200}" if n % 1_200 < 1_000 else None) for n in range(2_000)]
        assert by_one == [*found, (9_000, "a"), (9_000, "b"), (9_001, None)]
        by_two = [row["id"] for row in test.rows("two")]
        expected = [n for n in range(2_000) if n % 1_200 < 1_000 and n % 1_200 % 2 == 1]
        assert by_two == [*expected, 9_000, 9_000, 9_001]


def test_a_server_that_goes_away_is_asked_again(server: PostgresServer) -> None:
    job = Job("sales")
    lookup = PostgresLookup(server.url, "users", User, key="name", connections=1)
    joined = job.from_elements(Sale(0, "u0"), uid="sales").lookup_join(lookup, on="user", retries=1)
    joined.print(uid="out")
    with run(job, sales=[Sale(1, "u1")]) as test:
        server.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
        )
        test.push(sales=[Sale(2, "u2")])
        assert [row["id"] for row in test.rows("out")] == [1], "its connection is gone"
        test.advance_clock("1 s")
        assert [row["id"] for row in test.rows("out")] == [1, 2]


class Service(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        name = self.path[1:]
        known: dict[str, Any] = {"ann": {"country": "NZ"}, "a%2Fb": [{"country": "X"}, {}], "none": []}
        self.send_response(500 if name == "bad" else 200 if name in known else 404)
        self.end_headers()
        self.wfile.write(json.dumps(known.get(name, {})).encode())

    def log_message(self, format: str, *args: Any) -> None:
        pass


def test_a_service_is_asked_over_http() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Service) as service:
        threading.Thread(target=service.serve_forever, daemon=True).start()
        job = Job("sales")
        lookup = HttpLookup(f"http://127.0.0.1:{service.server_port}/{{name}}", User)
        sales = job.from_elements(Sale(0, "ann"), uid="sales")
        joined = sales.lookup_join(lookup, on="user", how="left", on_error=errors_to("failed"))
        joined.print(uid="out")
        joined.side_output("failed").print(uid="failed")
        names = ["ann", "a/b", "none", "eve", "bad"]
        with run(job, sales=[Sale(n, name) for n, name in enumerate(names)]) as test:
            found = [(row["id"], row["country"]) for row in test.rows("out")]
            assert found == [(0, "NZ"), (1, "X"), (1, None), (2, None), (3, None)]
            assert ["says 500" in row["error"] for row in test.rows("failed")] == [True]
        service.shutdown()


def test_a_key_that_is_not_there_is_refused() -> None:
    with pytest.raises(UsageError, match="name some of name, shop, country"):
        PostgresLookup("", "users", User, key="nmae")
    with pytest.raises(UsageError, match="name the key in braces"):
        HttpLookup("http://users/", User)
