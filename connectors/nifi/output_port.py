"""OutputPort: the requests of NiFi's site-to-site protocol, over HTTP, to one output port of one node."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import urllib3

from onceflow.connectors.http_headers import headers_with_variables
from onceflow.connectors.nifi.flow_files import FlowFile, TornPacket, unpacked
from onceflow.runtime.errors import Fatal, Retryable

_PREFIX = "x-nifi-site-to-site-"
_CONFIRM, _CANCEL = 12, 15
_BATCH = {"batch-size": str(16 * 1024 * 1024), "batch-duration": "1000"}
"""How much a transaction may bring; a flow file that is larger comes alone."""
_TIMEOUT = urllib3.Timeout(connect=10, read=30)
_OCTETS = "application/octet-stream"


@dataclass(frozen=True, slots=True)
class Received:
    """What a transaction brought; NiFi holds it until it is confirmed or its time to live is over."""

    transaction_id: str
    ttl_ms: int
    checksum: int
    flow_files: list[FlowFile] = field(repr=False)


@dataclass(frozen=True, slots=True)
class NifiPlace:
    """How a node of NiFi is reached."""

    port: str
    batch: int
    """How many flow files a transaction brings at most."""
    headers: Mapping[str, str]
    certificate: tuple[str, str] | None
    ca_file: str | None


class OutputPort:
    """One output port of one node. One thread calls it. Raises Retryable if NiFi can't be reached or does not
    answer as it should for now, Fatal if it refuses."""

    def __init__(self, url: str, place: NifiPlace) -> None:
        whole = url.rstrip("/")
        self._url = whole if whole.endswith("/nifi-api") else f"{whole}/nifi-api"
        self._name = place.port
        self._batch = {**_BATCH, "batch-count": str(place.batch)}
        self._where = f"output port {place.port!r} of {url}"
        headers = headers_with_variables(place.headers, os.environ, self._where)
        self._headers = {**headers, f"{_PREFIX}protocol-version": "1"}
        options: dict[str, Any] = {}
        if place.certificate is not None:
            options["cert_file"], options["key_file"] = place.certificate
        if place.ca_file is not None:
            options["ca_certs"] = place.ca_file
        self._http = urllib3.PoolManager(retries=False, timeout=_TIMEOUT, **options)
        self._port_url = ""

    def receive(self) -> Received:
        """Begin a transaction and take what it brings; with no flow files, if there are none."""
        if not self._port_url:
            self._port_url = f"{self._url}/data-transfer/output-ports/{self._port_id()}/transactions"
        made = self._asked("POST", self._port_url, "application/json", 201)
        transaction_id = made.headers["Location"].rstrip("/").rpartition("/")[2]
        ttl_ms = 1000 * int(made.headers.get(f"{_PREFIX}server-transaction-ttl", "30"))
        url = f"{self._port_url}/{transaction_id}/flow-files"
        batch = {f"{_PREFIX}{name}": value for name, value in self._batch.items()}
        body = self._asked("GET", url, _OCTETS, 200, 202, headers=batch)
        if body.status == 200:
            self.cancel(transaction_id)
            return Received(transaction_id, ttl_ms, 0, [])
        try:
            return Received(transaction_id, ttl_ms, zlib.crc32(body.data), [*unpacked(body.data)])
        except (TornPacket, UnicodeDecodeError) as error:
            self.cancel(transaction_id)
            raise Retryable(f"{self._where}: what it sent is torn: {error}") from error

    def confirm(self, received: Received) -> None:
        """NiFi may forget what the transaction brought. One that it does not know any more comes again,
        or was confirmed by a request whose answer was lost."""
        ending = f"responseCode={_CONFIRM}&checksum={received.checksum}"
        url = f"{self._port_url}/{received.transaction_id}?{ending}"
        answer = self._asked("DELETE", url, "application/json", 200, 404, 400)
        if answer.status == 400:
            raise Fatal(
                f"{self._where}: NiFi does not take the confirmation of a transaction "
                f"({_said(answer)}): look at its log"
            )

    def extend(self, received: Received) -> None:
        """Let the transaction live for its time once more, from now on."""
        self._asked("PUT", f"{self._port_url}/{received.transaction_id}", "application/json", 200, 404)

    def cancel(self, transaction_id: str) -> None:
        """NiFi may give to others what the transaction brought; if this fails, it does so by itself."""
        with suppress(Retryable, Fatal):
            url = f"{self._port_url}/{transaction_id}?responseCode={_CANCEL}"
            self._asked("DELETE", url, "application/json", 200, 404)

    def close(self) -> None:
        self._http.clear()

    # --- Parts ---

    def _port_id(self) -> str:
        answer = self._asked("GET", f"{self._url}/site-to-site", "application/json", 200)
        ports = answer.json()["controller"].get("outputPorts") or []
        for port in ports:
            if self._name in (port["name"], port["id"]):
                return str(port["id"])
        names = ", ".join(sorted(port["name"] for port in ports)) or "none"
        raise Fatal(f"{self._where} is not there: the output ports for site-to-site are {names}: name one")

    def _asked(
        self, method: str, url: str, accept: str, *wanted: int, headers: Mapping[str, str] | None = None
    ) -> urllib3.BaseHTTPResponse:
        given = {**self._headers, **(headers or {}), "Accept": accept}
        if method != "GET":
            given["Content-Type"] = _OCTETS
        try:
            answer = self._http.request(method, url, body=None if method == "GET" else b"", headers=given)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise Retryable(f"{self._where}: {error}") from error
        if answer.status in wanted:
            return answer
        if answer.status in (401, 403):
            raise Fatal(
                f"{self._where}: NiFi does not let it in ({answer.status}): give the right to receive data "
                "by site-to-site to whoever certificate= or headers= stands for"
            )
        if answer.status == 404 and method == "POST":
            raise Fatal(f"{self._where} is gone: make it again, or name another port=")
        raise Retryable(f"{self._where}: NiFi answers {method} with {answer.status} {_said(answer)}")


def _said(answer: urllib3.BaseHTTPResponse) -> str:
    with suppress(ValueError, UnicodeDecodeError):
        found = json.loads(answer.data)
        if isinstance(found, dict) and found.get("message"):
            return str(found["message"])
    return answer.data[:200].decode(errors="replace")
