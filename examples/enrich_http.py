"""Ask an HTTP service for the country of each purchase's user. What it refuses goes to a topic of its own.

onceflow run examples/enrich_http.py --checkpoint-dir /tmp/enrich \
    -- --bootstrap-servers localhost:9092 --service http://localhost:8080/users \
    --input purchases --output purchases-with-country --refused purchases-refused
"""

import argparse
import json
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass

from onceflow import Job, Retryable, col, errors_to
from onceflow.connectors.formats import Json
from onceflow.connectors.kafka import KafkaSource
from onceflow.sinks.kafka import KafkaSink

TIMEOUT_S = 5
TOO_MANY_REQUESTS = 429
SERVER_ERROR = 500


@dataclass(frozen=True, slots=True)
class Purchase:
    user: str
    amount: int  # cents


@dataclass(frozen=True, slots=True)
class Enriched:
    user: str
    amount: int
    country: str


class CountryOf:
    """Asks the service for the country of a user, one record at a time."""

    def __init__(self, service: str) -> None:
        self.service = service

    def __call__(self, purchase: Purchase) -> Enriched:
        url = f"{self.service}/{urllib.parse.quote(purchase.user, safe='')}"
        try:
            with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:
                return Enriched(purchase.user, purchase.amount, json.load(answer)["country"])
        except urllib.error.HTTPError as refused:
            if refused.code >= SERVER_ERROR or refused.code == TOO_MANY_REQUESTS:
                raise Retryable(f"{url} says {refused.code}") from refused
            raise  # it says no, and will say no again: the record is put aside
        except OSError as away:
            raise Retryable(f"{url} can't be reached: {away}") from away


def build(arguments: list[str]) -> Job:
    options = parse(arguments)
    servers = options.bootstrap_servers
    job = Job("enrich-http")
    source = KafkaSource(
        bootstrap_servers=servers, topics=[options.input], value=Json(Purchase), until=options.until
    )
    purchases = job.source(source, uid="purchases").rebalance()
    enriched = purchases.map(CountryOf(options.service), on_error=errors_to("refused"))
    record = col("record").struct
    refused = enriched.side_output("refused").select("error", user=record["user"], amount=record["amount"])
    enriched.sink_to(KafkaSink(bootstrap_servers=servers, topic=options.output, key="user"), uid="enriched")
    refused.sink_to(KafkaSink(bootstrap_servers=servers, topic=options.refused, key="user"), uid="refused")
    return job


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="enrich_http.py", description=__doc__)
    parser.add_argument("--bootstrap-servers", default="localhost:9092")
    parser.add_argument("--service", default="http://localhost:8080/users", help="URL before the user's name")
    parser.add_argument("--input", default="purchases", help="topic with purchases")
    parser.add_argument("--output", default="purchases-with-country", help="topic for what was enriched")
    parser.add_argument("--refused", default="purchases-refused", help="topic for what was refused")
    parser.add_argument("--until", choices=["latest"], help="stop at what is there now; else run on")
    return parser.parse_args(arguments)
