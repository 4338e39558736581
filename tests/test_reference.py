"""The reference has every public name, with an example that runs, and every sentence of an error."""

from __future__ import annotations

import ast
import importlib
import re
import runpy
import sys
from pathlib import Path

import pytest

from onceflow.runtime.api.broadcast_streams import BroadcastConnectedStreams
from onceflow.runtime.api.connected_streams import ConnectedStreams, KeyedConnectedStreams
from onceflow.runtime.api.job import Job
from onceflow.runtime.api.keyed_stream import KeyedStream
from onceflow.runtime.api.stream import Stream
from onceflow.runtime.api.windowed_stream import WindowedStream

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

from documents import errors_page, raise_sites  # noqa: E402 - scripts/ is a folder of programs

REFERENCE = ROOT / "docs" / "reference"
EXAMPLES = sorted((ROOT / "docs" / "examples").glob("*.py"))
PUBLIC = (
    "onceflow",
    "onceflow.testing",
    "onceflow.testing.kit",
    "onceflow.connectors.kafka",
    "onceflow.connectors.formats",
    "onceflow.connectors.files",
    "onceflow.connectors.hybrid",
    "onceflow.connectors.http_stream",
    "onceflow.connectors.postgres_cdc",
    "onceflow.connectors.nexmark",
    "onceflow.connectors.rabbitmq",
    "onceflow.connectors.pubsub",
    "onceflow.connectors.nifi",
    "onceflow.connectors.kinesis",
    "onceflow.sinks.files",
    "onceflow.sinks.kafka",
    "onceflow.connectors.delta",
    "onceflow.sinks.delta",
    "onceflow.sinks.iceberg",
    "onceflow.sinks.postgres",
    "onceflow.sinks.mysql",
    "onceflow.sinks.transactional",
    "onceflow.sinks.redis",
    "onceflow.sinks.opensearch",
    "onceflow.sinks.cassandra",
    "onceflow.sinks.http",
    "onceflow.runtime.contracts",
    "onceflow.runtime.testing.conformance",
    "onceflow.runtime.errors",
    "onceflow.runtime.records",
    "onceflow.runtime.clock",
)
"""The modules that users import from: all that their __all__ has, or else their own classes and functions."""

OF_THE_ENGINE = {
    "onceflow.runtime.testing.conformance": {
        *("OPERATOR_CHECKS", "OperatorUnderTest", "STORE_CHECKS", "TABLE_CHECKS", "TableUnderTest"),
    },
}
"""Names in those modules that nobody outside of the engine uses."""

OF_POLARS = {"col", "lit"}
"""Explained under "Expressions"; polars documents them."""

TYPES_OF_METHODS = (
    Job,
    Stream,
    KeyedStream,
    WindowedStream,
    ConnectedStreams,
    KeyedConnectedStreams,
    BroadcastConnectedStreams,
)
INSIDE = {"add", "all_steps_or_none", "new_uid", "collected"}
"""Methods that the classes call among themselves."""


def public_names(module: str) -> set[str]:
    """The names of a module that users import."""
    its = importlib.import_module(module)
    listed = getattr(its, "__all__", None) or [
        name
        for name, value in vars(its).items()
        if not name.startswith("_") and getattr(value, "__module__", "") == module and callable(value)
    ]
    return set(listed) - OF_THE_ENGINE.get(module, set())


def documented() -> set[str]:
    """What pages of the reference show, by its whole name."""
    return {
        name for page in REFERENCE.glob("*.md") for name in re.findall(r"^::: (\S+)", page.read_text(), re.M)
    }


def found(name: str) -> object:
    """What a whole name is the name of."""
    module, _, last = name.rpartition(".")
    return getattr(importlib.import_module(module), last)


def used(example: Path) -> set[str]:
    """Every name and attribute in an example."""
    names = set()
    for node in ast.walk(ast.parse(example.read_text())):
        match node:
            case ast.Name(name) | ast.Attribute(attr=name):
                names.add(name)
    return names


@pytest.mark.parametrize("module", PUBLIC)
def test_every_public_name_is_in_the_reference(module: str) -> None:
    its, there = importlib.import_module(module), [id(found(name)) for name in documented()]
    missing = {name for name in public_names(module) if id(getattr(its, name)) not in there}
    assert missing - (OF_POLARS if module == "onceflow" else set()) == set()
    streams = (REFERENCE / "streams.md").read_text()
    assert all(f"`onceflow.{name}`" in streams for name in OF_POLARS)


@pytest.mark.parametrize("module", PUBLIC)
def test_every_public_name_is_used_in_an_example(module: str) -> None:
    assert {"Job", "from_elements"} <= used(ROOT / "docs/examples/job.py")
    assert public_names(module) - {name for example in EXAMPLES for name in used(example)} == set()


@pytest.mark.parametrize("of", TYPES_OF_METHODS)
def test_every_method_of_a_stream_is_used_in_an_example(of: type) -> None:
    methods = {
        name
        for base in of.__mro__
        if base.__module__.startswith("onceflow")
        for name in vars(base)
        if not name.startswith("_")
    }
    assert methods - INSIDE - {name for example in EXAMPLES for name in used(example)} == set()


def test_every_example_is_on_a_page_of_the_reference() -> None:
    pages = "".join(page.read_text() for page in REFERENCE.glob("*.md"))
    assert not [example.name for example in EXAMPLES if f'--8<-- "examples/{example.name}"' not in pages]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs_and_its_jobs_build(example: Path) -> None:
    """Its name is not __main__: what needs a Spark or a Kafka of the reader's is below that line."""
    for value in runpy.run_path(str(example), run_name=f"example_{example.stem}").values():
        if isinstance(value, Job):
            assert value.build().chains


# --- The error index ------------------------------------------------------------------------------------

PLANTED = """
_MORE = "; or else"

def f(uid, names):
    if not names:
        raise GraphError(f"operator {uid!r}: there is no name{_MORE}")
    said = "one" if uid else "two"
    failure = errors.Fatal(said)
    raise OptionError(self.text(names))

def text(self, names):
    return f"not one of {', '.join(names)}: " + "choose"

def g(error):
    raise ValueError("not ours")
"""


def test_raise_sites_are_found_with_all_that_they_say() -> None:
    tree = ast.parse("class Fatal(OnceflowError): ...\nclass GraphError(OnceflowError): ...\n" + PLANTED)
    ours = ast.parse("class OptionError(Fatal): ...")
    found = raise_sites.sites({"a.py": tree, "b.py": ours})
    assert [(site.error, site.sentences) for site in found] == [
        ("GraphError", ("operator '‹uid›': there is no name; or else",)),
        ("Fatal", ("one", "two")),
        ("OptionError", ("not one of ‹names›: choose",)),
    ]


def test_the_index_has_the_sentences_of_all_raise_sites() -> None:
    """Each `raise` of an error of ours, found a second time and in a plainer way."""
    trees = raise_sites.modules()
    sites = raise_sites.all_sites()
    ours = set(raise_sites.errors(trees)) - errors_page.INSIDE
    assert {"UsageError", "GraphError", "EncodeError", "BrokerError"} <= ours
    known = {(site.file, site.line) for site in sites}
    raised = {
        (file, node.exc.lineno)
        for file, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Raise)
        and isinstance(node.exc, ast.Call)
        and ast.unparse(node.exc.func).split(".")[-1] in ours
    }
    assert len(raised) > 400
    assert raised <= known
    assert errors_page.without_text(sites) == []


def test_every_sentence_of_an_error_has_a_way_out() -> None:
    entries = errors_page.entries()
    assert [f"{entry.error}: {entry.sentence}" for entry in entries if entry.do is None] == [], (
        "let the sentence say what to do; or say it in scripts/documents/ways_out.toml"
    )
    needed = {entry.way.says for entry in entries if entry.way is not None}
    assert [way.says for way in errors_page.ways() if way.says not in needed] == [], "nobody needs these"
    unresolved = {site.file for site in raise_sites.all_sites() if not site.sentences}
    assert set(errors_page.PASSED_ON) <= unresolved, "take it out of PASSED_ON"
