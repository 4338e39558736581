"""NifiSource: flow files of an output port of Apache NiFi, each once, confirmed with the checkpoint that
counts them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from onceflow.connectors.bad_records import Tolerance
from onceflow.connectors.collections.fixed_splits import FixedSplits
from onceflow.connectors.formats import Format
from onceflow.connectors.message_fields import attribute_fields, named_fields
from onceflow.connectors.message_source import MessageSource
from onceflow.runtime.clock import Clock
from onceflow.runtime.contracts import ReaderContext, Sink, SplitState
from onceflow.runtime.durations import duration_ms
from onceflow.runtime.errors import OptionError
from onceflow.runtime.explained_calls import explained

if TYPE_CHECKING:
    from onceflow.connectors.acknowledged.reader import QueueReader

_LEASE_MIN_MS = 30_000


@explained
@dataclass(frozen=True, kw_only=True)
class NifiSource(MessageSource):
    """Reads flow files from an output port of Apache NiFi by site-to-site over HTTP, each once. A Source;
    connects only when the job runs. Needs `pip install 'onceflow[nifi]'`.

    NiFi gives flow files in transactions. One is confirmed when the checkpoint is complete that counts all of
    it; until then the source lets it live on, and the uuids of its flow files are in the checkpoint, so that
    what comes again is left out. Each node is a split, read by one slot: let it be the port's only reader.
    """

    urls: Sequence[str]
    """The addresses of NiFi's nodes: "http://nifi-1:8080"."""
    port: str
    """The output port, by name or id. It has to allow remote access."""
    value: Format
    """What the content of a flow file is: Json(Order)."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Further headers. `${TOKEN}` in one is the variable TOKEN of the slots' environment, so that it is in no
    checkpoint and no plan."""
    certificate: tuple[str, str] | None = None
    """The files of a client certificate and its key, where the slots run: what NiFi knows a reader by."""
    ca_file: str | None = None
    """The file of the authority that signed NiFi's own certificate. None: those of the system."""
    prefetch: int = 20_000
    """How many flow files of a node may be unconfirmed before no more are asked for: what comes in a
    checkpoint interval, and more."""
    batch: int = 1_000
    """How many flow files a transaction brings at most. It is confirmed when all of them are counted."""
    lease: str | int = "10 min"
    """For how long a transaction may be held without a complete checkpoint. If none is complete in half of
    it, the job ends."""
    remember: str | int = "1 min"
    """For how long a flow file may come again whose confirmation was lost: longer than NiFi lets a
    transaction live (30 s by default, and half as long again)."""
    until_quiet: str | int | None = None
    """End when a node has had nothing for so long, and for twice as long as a transaction lives. None:
    never."""
    id_column: str | None = None
    """The name of a column with the flow file's uuid."""
    attribute_columns: Mapping[str, str] = field(default_factory=dict)
    """Columns with attributes: {"file": "filename"} is a column file with the attribute filename, null where
    a flow file lacks it."""
    timeout: str | int = "2 min"
    """How long NiFi may be away before the attempt fails."""
    errors_tolerance: Tolerance = "none"
    """"none": a flow file that can't be decoded ends the job. "all": it goes to dead_letters."""
    dead_letters: Sink | None = None
    """Any sink for flow files that can't be decoded; errors_tolerance is then "all"."""
    columns: frozenset[str] | None = field(default=None, repr=False)
    """Set by project(): the columns that the job reads."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "urls", (self.urls,) if isinstance(self.urls, str) else tuple(self.urls))
        object.__setattr__(self, "attribute_columns", dict(self.attribute_columns))
        _check(self)

    # --- Source ---

    @property
    def takes_what_it_reads(self) -> bool:
        """See TakingSource."""
        return True

    @property
    def is_bounded(self) -> bool:
        return self.until_quiet is not None

    @property
    def plan_note(self) -> str:
        return "exactly once: confirmed with the checkpoint, and what comes again is known by its uuid"

    def open_enumerator(self, job: str, clock: Clock) -> FixedSplits:
        return FixedSplits([SplitState(url, {"count": 0, "ids": ""}) for url in self.urls])

    def open_reader(self, context: ReaderContext) -> QueueReader:
        from onceflow.connectors.acknowledged.reader import QueueReader, QueueSettings
        from onceflow.connectors.nifi.deliveries import NifiDeliveries
        from onceflow.connectors.nifi.output_port import NifiPlace

        settings = QueueSettings(
            self.is_bounded,
            duration_ms(self.remember, "remember"),
            duration_ms(self.timeout, "timeout"),
            duration_ms(self.lease, "lease"),
            "give a longer lease=",
        )
        connect = partial(
            NifiDeliveries,
            place=NifiPlace(self.port, self.batch, self.headers, self.certificate, self.ca_file),
            prefetch=self.prefetch,
            quiet_ms=None if self.until_quiet is None else duration_ms(self.until_quiet, "until_quiet"),
            context=context,
        )
        return QueueReader(connect, self.rows(), self.read_beside(), settings, context)

    # --- Parts ---

    def beside(self) -> dict[str, pa.Field]:
        """See MessageSource."""
        return named_fields({}, id=self.id_column) | attribute_fields(self.attribute_columns)


def _check(source: NifiSource) -> None:
    source.check_message_source("nifi", "urllib3", ("remember", "timeout"))
    source.check_names("urls", "nodes")
    for url in source.urls:
        if not url.startswith(("http://", "https://")):
            raise OptionError(
                f"NifiSource: urls: {url!r}: give an address that begins with http:// or https://"
            )
    if not isinstance(source.port, str) or not source.port:
        raise OptionError(f"NifiSource: port={source.port!r}: give the name of an output port, or its id")
    for name in ("prefetch", "batch"):
        given = getattr(source, name)
        if not (isinstance(given, int) and given > 0):
            raise OptionError(f"NifiSource: {name}={given!r}: give a number from 1 on")
    if duration_ms(source.lease, "lease") < _LEASE_MIN_MS:
        raise OptionError(
            f"NifiSource: lease={source.lease!r} is too short for checkpoints: give 30 s or more"
        )
    if source.until_quiet is not None:
        duration_ms(source.until_quiet, "until_quiet")
