"""docs/reference/errors.md: each sentence that an error of ours may say, and what to do about it.

The sentences are read from the source (raise_sites.py). Most say themselves what to do; for the others
ways_out.toml does.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from documents.raise_sites import Site, all_sites

MISTAKES = ("GraphError", "OptionError", "UsageError")
"""The kinds that come first: mistakes in a program or a command."""

INSIDE = frozenset({"AlreadyExists", "LogMoved"})
"""Caught by whoever called: nobody reads them."""

PASSED_ON = {
    "connectors/formats/avro/encode.py": "the sentence of a column that Avro can't write",
    "connectors/kafka/transactions/reasons.py": "a sentence of the producer, with librdkafka's reasons",
    "onceflow/cli/broker_consume.py": "a sentence of Kafka's, without secrets",
    "onceflow/cli/broker_produce.py": "a sentence of Kafka's, without secrets",
    "onceflow/cli/broker_topics.py": "a sentence of Kafka's, without secrets",
    "onceflow/cli/run.py": "the sentence of what refused the job",
    "onceflow/structured_streaming/sink_rows.py": "the sentence of the row",
    "onceflow/testing/job_run.py": "the sentence of what failed the job",
    "runtime/api/collected.py": "the sentence of _missing",
    "runtime/api/job.py": "the sentence of what refused the job",
    "runtime/driver/enumerators.py": "the sentences of sources",
    "runtime/checkpoint/recovery.py": "the sentence of the log's first entry",
}
"""Files with a call whose text is another's: where that is."""

AREAS: Sequence[tuple[str, str]] = (
    (
        "Writing a job",
        "runtime/api/ runtime/graph/ runtime/operators/ runtime/state/ runtime/types/ runtime/contracts/ "
        "runtime/arguments.py runtime/explained_calls.py connectors/extras.py connectors/generator/ "
        "connectors/nexmark/ "
        "connectors/collections/ connectors/hybrid/",
    ),
    ("Formats, and records that can't be decoded", "connectors/formats/ connectors/bad_records.py"),
    (
        "Files",
        "connectors/files/ sinks/files.py connectors/staged_rows.py connectors/hand_over.py sinks/collect.py "
        "sinks/print.py sinks/foreach.py",
    ),
    (
        "Streams over HTTP, and webhooks",
        "connectors/http_stream/ connectors/http_headers.py connectors/http_lookup.py connectors/webhooks/ "
        "sinks/http.py",
    ),
    (
        "Queues and streams",
        "connectors/rabbitmq/ connectors/nifi/ connectors/pubsub/ connectors/kinesis/ "
        "connectors/acknowledged/ connectors/reconnects.py connectors/message_rows.py "
        "connectors/message_fields.py connectors/message_source.py",
    ),
    ("Kafka", "connectors/kafka/ sinks/kafka.py"),
    (
        "PostgreSQL, MySQL, and sinks with a ledger",
        "connectors/sql_tables/ connectors/mysql/ sinks/mysql.py "
        "connectors/postgres/ connectors/postgres_cdc/ connectors/named_columns.py "
        "connectors/staged_commits/ connectors/waiting.py connectors/recovery.py "
        "sinks/postgres.py sinks/transactional.py",
    ),
    ("Tables", "connectors/tables/ connectors/delta/ connectors/iceberg/ sinks/delta.py sinks/iceberg.py"),
    (
        "Stores by key",
        "connectors/versioned_upserts/ connectors/redis/ connectors/opensearch/ connectors/cassandra/ "
        "sinks/redis.py sinks/opensearch.py sinks/cassandra.py",
    ),
    ("Checkpoints and recovery", "runtime/checkpoint/"),
    ("Running", "runtime/"),
    ("Command line", "onceflow/cli/"),
    ("Structured Streaming", "onceflow/structured_streaming/"),
    ("Testing", "onceflow/testing/"),
)
"""Parts of the page, and the files whose errors are there: the first that fits."""

_BEGINS = (
    r"use|give|name|pass|write|set|start|run|look|put|leave|call|add|make|install|check|choose|remove|keep|see|"
    r"register|declare|annotate|select|decode|drop|take|say|stop|wait|create|delete|rename|restore|send|try|"
    r"clear|turn|ask|read|mount|copy|open|allow|bring|compute|derive|export|let|begin|free|raise|cast|key_by|"
    r"shorten|split|lower|go"
)
_WAY_OUT = re.compile(
    rf"[:;.,](?: or| and| then)? (?=(?:(?:or|and|then|please|first|to) )*(?:{_BEGINS})\b(?!=)"
    r"|did you mean|expected|wanted is|it has to|it must|is it )",
    re.IGNORECASE,
)
_RULE = re.compile(
    r"\b(?:must|needs?|has to|have to|may only|takes|wanted|(?:is|are) no|is not an?\b|only|did you mean|"
    rf"there (?:is|are)|{_BEGINS})\b|‹(?:nearest|advice|hint|todo|near|offered)"
)

_PLACE = re.compile(r"[a-z]+ '?‹[^›]*›'?")
"""What says no more than where."""

HEAD = """# Error index

When something is wrong, onceflow says in one sentence what was wrong, where, and what to do. Search this page
for a few words of the sentence; the text between ‹ and › differs from case to case. If the sentence itself
names a way out, the second column has it in the same words.

[Exceptions](exceptions.md) describes the kinds of errors, and what each does to the job. This page is written
from the source by `python scripts/write_documents.py`, so no sentence is missing.
"""


@dataclass(frozen=True, slots=True)
class Way:
    """A way out that is written by hand."""

    says: str
    do: str
    error: str = ""

    def fits(self, error: str, sentence: str) -> bool:
        pattern = self.says.replace("‹…›", "'?‹[^›]*›'?")
        return self.error in ("", error) and re.match(pattern, sentence) is not None


@dataclass(frozen=True, slots=True)
class Entry:
    """A sentence of the index."""

    area: str
    error: str
    sentence: str
    do: str | None
    """What to do; None: nobody has said it."""
    way: Way | None = None


def ways() -> list[Way]:
    text = (Path(__file__).parent / "ways_out.toml").read_text()
    return [Way(**each) for each in tomllib.loads(text)["way"]]


@cache
def entries() -> Sequence[Entry]:
    """All sentences, once for each area and kind."""
    by_hand = ways()
    found: dict[tuple[str, str, str], Entry] = {}
    for site in met(all_sites()):
        for sentence in site.sentences:
            key = (area_of(site.file), site.error, sentence)
            found[key] = _entry(*key, by_hand)
    return tuple(found.values())


def met(sites: Sequence[Site]) -> list[Site]:
    """The sites whose errors people meet."""
    return [s for s in sites if s.error not in INSIDE and "/testing/fake.py" not in s.file]


def without_text(sites: Sequence[Site]) -> list[str]:
    """Calls whose text is not found, in files that PASSED_ON does not know."""
    return [
        f"{s.file}:{s.line} {s.source}" for s in met(sites) if not s.sentences and s.file not in PASSED_ON
    ]


def area_of(file: str) -> str:
    return next(area for area, begins in AREAS if file.startswith(tuple(begins.split())))


def _entry(area: str, error: str, sentence: str, by_hand: Sequence[Way]) -> Entry:
    parts = [at for at in _WAY_OUT.finditer(sentence) if not _PLACE.fullmatch(sentence[: at.start()])]
    if parts and parts[0].start() > 8:
        at = parts[0]
        return Entry(area, error, sentence[: at.start()], _as_a_sentence(sentence[at.end() :]))
    way = next((way for way in by_hand if way.fits(error, sentence)), None)
    if way is not None:
        return Entry(area, error, sentence, way.do, way)
    return Entry(area, error, sentence, "As the sentence says." if _RULE.search(sentence) else None)


def page() -> str:
    """The whole page."""
    found = entries()
    return "\n".join([HEAD, *(line for area, _ in AREAS for line in _area(area, found))])


def _area(area: str, found: Sequence[Entry]) -> Iterator[str]:
    here = [entry for entry in found if entry.area == area]
    yield f"## {area}\n"
    for error in sorted({entry.error for entry in here}, key=lambda e: (e not in MISTAKES, e)):
        yield f"### {error}\n"
        yield "| it says | what to do |\n| --- | --- |"
        for entry in sorted((e for e in here if e.error == error), key=lambda e: e.sentence.lower()):
            yield f"| {_in_markdown(entry.sentence)} | {entry.do} |"
        yield ""


def _in_markdown(text: str) -> str:
    """A sentence for a cell of a table: what is filled in is in italics, what is in backticks stays."""
    text = text.replace("‹nearest›", "")
    pieces = re.split(r"(`[^`]+`)", text)
    pieces[::2] = [_in_italics(re.sub(r"([|*_<>`\[\]#])", r"\\\1", piece)) for piece in pieces[::2]]
    return "".join(pieces)


def _in_italics(text: str) -> str:
    return re.sub(r"'‹([^›]*)›'(?!\w)|‹([^›]*)›", r"<em>‹\1\2›</em>", text)


def _as_a_sentence(text: str) -> str:
    """The text with a capital letter and a stop. A name of the API stays as it is written."""
    begins = text[0].upper() + text[1:] if re.match(r"[a-z]+\b(?![_(.=])", text) else text
    return f"{_in_markdown(begins)}{'' if text.endswith('?') else '.'}"
