"""A real OpenSearch, and a real Elasticsearch, for tests."""

from __future__ import annotations

import itertools
import random
import socket
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import urllib3

from tests.java_server import JavaServer

_PORTS, _PORTS_BETWEEN_NODES = range(9_201, 9_299), range(9_301, 9_399)
"""The program takes its ports from these. No connection of another program is given one of them meanwhile, as
it may be with a port that the system chooses: a server that was killed has to get its ports again."""


class OpenSearchServer(JavaServer):
    """One node on a port of loopback."""

    program = "opensearch-2.19.1"
    main_class = "org.codelibs.opensearch.runner.OpenSearchRunner"
    settings_file = "opensearch.yml"
    in_container = "opensearch"
    """See container_of; empty: it is always a process."""

    def __init__(self) -> None:
        self.port = _free_port(_PORTS)
        self._pool = urllib3.PoolManager(retries=False)
        super().__init__(self.in_container, [self.port])
        settings = self.folder / "node_1" / "config"
        settings.mkdir(parents=True)
        (settings / self.settings_file).write_text(
            f"transport.port: {_free_port(_PORTS_BETWEEN_NODES)}\n"
            "discovery.type: single-node\nnetwork.host: 127.0.0.1\n"
            "cluster.routing.allocation.disk.threshold_enabled: false\n"
        )

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def command(self) -> Sequence[str]:
        return [
            *("-Xms256m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
            self.main_class,
            *("-basePath", str(self.folder), "-numOfNode", "1", "-clusterName", "onceflow"),
            *("-baseHttpPort", str(self.port - 1)),
        ]

    def answers(self) -> bool:
        with suppress(urllib3.exceptions.HTTPError):
            told = self.ask("GET", "/_cluster/health?wait_for_status=yellow&timeout=60s")
            return not told.get("timed_out", True)
        return False

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """The JSON of an answer."""
        return self._pool.request(method, self.url + path, json=body).json()

    def documents(self, index: str) -> dict[str, dict[str, Any]]:
        """All documents of an index, by their _id."""
        self.ask("POST", f"/{index}/_refresh")
        found: dict[str, dict[str, Any]] = {}
        pages = {"size": 5_000, "sort": [{"_doc": "asc"}]}
        told = self.ask("POST", f"/{index}/_search?scroll=1m", pages)
        for _ in itertools.count():
            hits = told.get("hits", {}).get("hits", [])
            found.update({hit["_id"]: hit["_source"] for hit in hits})
            if not hits:
                return found
            told = self.ask("POST", "/_search/scroll", {"scroll": "1m", "scroll_id": told["_scroll_id"]})
        return found


class ElasticsearchServer(OpenSearchServer):
    """The last one that is free software."""

    program = "elasticsearch-7.10.2"
    main_class = "org.codelibs.elasticsearch.runner.ElasticsearchClusterRunner"
    settings_file = "elasticsearch.yml"
    in_container = ""


def _free_port(ports: Sequence[int]) -> int:
    return next(port for port in random.sample(ports, len(ports)) if _is_free(port))


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return True
    return False
