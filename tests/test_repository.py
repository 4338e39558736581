"""Rules of the repository that run: layers, sizes, names, what must not be in it, how fast it imports.

A rule that is broken on purpose must fail: each finder below is shown a planted fault first.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from itertools import chain
from pathlib import Path

import pytest

from tests.covered import Covered
from tests.covered_elsewhere import COVERED
from tests.source_facts import docstrings, facts, nodes, tree, unbounded_clients
from tests.untested_modules import untested

ROOT = Path(__file__).resolve().parent.parent
PRODUCTION = (
    "connectors",
    "runtime",
    "sinks",
    "onceflow/cli",
    "onceflow/structured_streaming",
    "onceflow/testing",
)
ALL = (*PRODUCTION, "docs/examples", "examples", "benchmarks", "scripts", "tests")

FILE_LINES = 300
FILE_LINES_WALL = 500
FUNCTION_LINES = 60
PARAMETERS = 8
IMPORT_S = 0.3

LONG_FILES = {
    "runtime/checkpoint/coordinator.py": 480,
    "runtime/driver/driver.py": 380,
    "runtime/api/stream.py": 370,
    "runtime/testing/mutants.py": 330,
    "runtime/testing/world.py": 430,
}
"""Files above 300 lines and how long they may be: a ratchet. Numbers may shrink, entries may go."""

LONG_TESTS = {"tests/integration/conftest.py": 530}
"""Above the wall; a conftest can't be imported in parts."""

OPTIONS = "runtime/api/job.py:run", "runtime/api/run_options.py:run_options"
LONG_FUNCTIONS = {"onceflow/cli/run.py:run": 80, **dict.fromkeys(OPTIONS, 64)}
"""A command with an option on each line, and the calls behind it."""

MANY_PARAMETERS = {  # one for each option of a command, or of a source
    "onceflow/cli/broker_consume.py:consume",
    "onceflow/cli/broker_produce.py:produce",
    "onceflow/cli/run.py:run",
    "onceflow/cli/verify.py:verify",
    "runtime/api/built_in_sources.py:from_files",
    *OPTIONS,
}

VAGUE_NAMES = {"utils", "util", "common", "helpers", "helper", "manager", "misc", "base", "impl"}

NOT_HERE = {
    "a machine's own path": re.compile(r"/(?:work/(?:main|shared)|tmp/venv|root|home/[a-z]\w*|Users/\w+)\b/"),
    "a credential in a URL": re.compile(r"\w+://[^\s/@:\"'{}<>]+:[^\s/@\"'{}<>]+@"),
    "a private key": re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY"),
    "an access key": re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b|\bgh[pousr]_\w{30,}|\bglpat-\w{15,}"),
    "a host of somebody's own network": re.compile(
        r"(?<!\bcom\.sun\.)(?<!\bcom\.sun\.jmx\.)\b(?!jdk\.internal\b)"  # packages of Java
        r"[\w-]+\.(?:internal|corp|intra)\b|\bartifactory\b"
    ),
}


def python_files(*folders: str) -> list[Path]:
    """All Python files below these folders of the repository; links aside."""
    return sorted(
        path
        for folder in folders
        for path in (ROOT / folder).rglob("*.py")
        if not any(parent.is_symlink() for parent in path.parents)
    )


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


# --- Layers -------------------------------------------------------------------------------------------


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-c",
        "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports())",
    ]
    command[2] = command[2].replace("lint_imports()", "lint_imports(no_cache=True)")
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=480, check=False)


def test_layers_hold() -> None:
    run = lint_imports(ROOT)
    assert run.returncode == 0, run.stdout + run.stderr


BROKEN_LAYERS = [
    (
        "runtime/checkpoint/alignment.py",
        "import onceflow.runtime.slot.task",
        "the runtime",
        "alignment -> onceflow.runtime.slot.task",
    ),
    (
        "runtime/records.py",
        "import onceflow.connectors.kafka",
        "the house",
        "records -> onceflow.connectors.kafka",
    ),
    (
        "sinks/kafka.py",
        "import onceflow.runtime.checkpoint.coordinator",
        "a connector sees the contracts",
        "kafka -> onceflow.runtime.checkpoint.coordinator",
    ),
    ("runtime/checkpoint/pending.py", "import random", "what decides is pure", "pending -> random"),
    ("runtime/slot/slot.py", "import pyspark", "only runtime.hosts.spark imports pyspark", "slot -> pyspark"),
    (
        "runtime/operators/windows/reduce.py",
        "import onceflow.runtime.state.heap.heap_table",
        "an operator knows tables",
        "reduce -> onceflow.runtime.state.heap.heap_table",
    ),
    ("runtime/nowhere.py", "", "the runtime", "not listed as layers: - onceflow.runtime.nowhere"),
]
"""A file, a line that it must not have, the contract that forbids it, and what is said of it."""


def test_broken_layers_are_caught(tmp_path: Path) -> None:
    """A copy of the tree with some wrong imports, and with a module that has no place."""
    (tmp_path / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text())
    for source in [ROOT / "onceflow/__init__.py", *python_files(*PRODUCTION)]:
        inside = name_of(source) if name_of(source).startswith("onceflow/") else f"onceflow/{name_of(source)}"
        (tmp_path / inside).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / inside).write_text(source.read_text())
    for file, line, _, _ in BROKEN_LAYERS:
        target = tmp_path / "onceflow" / file
        target.write_text((target.read_text() if target.exists() else "") + f"\n{line}\n")
    run = lint_imports(tmp_path)
    assert run.returncode != 0
    said = {contract: "" for _, _, contract, _ in BROKEN_LAYERS}
    for part in re.split(r"\n\n(?=\S.*(?:\n\S.*)?\n-{9,})", run.stdout.split("Broken contracts")[1]):
        for contract in said:
            if part.strip().startswith(contract):
                said[contract] = " ".join(part.split())
    for _, _, contract, edge in BROKEN_LAYERS:
        assert edge in said[contract], f"{contract}: {edge}\n{run.stdout}"


def test_imports_are_absolute_and_by_one_name() -> None:
    wrong = [
        f"{name_of(path)}: {'.' * level}{name}"
        for path in python_files(*ALL)
        for level, name in facts(path).imports
        if level > 0 or name.split(".")[0] in {"connectors", "runtime", "sinks"}
    ]
    assert not wrong


# --- Sizes and names ----------------------------------------------------------------------------------


def test_files_are_short() -> None:
    lines = {name_of(path): path.read_text().count("\n") for path in python_files(*ALL)}
    too_long = {
        name: count
        for name, count in lines.items()
        if count > {**LONG_FILES, **LONG_TESTS}.get(name, FILE_LINES_WALL if "tests/" in name else FILE_LINES)
    }
    assert not too_long, "split it by what it does; the ratchet only goes down"
    assert max(LONG_FILES.values()) <= FILE_LINES_WALL
    stale = [name for name in LONG_FILES if lines.get(name, 0) <= FILE_LINES]
    assert not stale, "short enough now: take it out of LONG_FILES"


def test_functions_are_short() -> None:
    too_long = {
        f"{name_of(path)}:{name}": length
        for path in python_files(*ALL)
        for name, length in facts(path).lengths
        if length > LONG_FUNCTIONS.get(f"{name_of(path)}:{name}", FUNCTION_LINES)
    }
    assert not too_long


def test_functions_have_few_parameters() -> None:
    too_many = {
        f"{name_of(path)}:{name}": count
        for path in python_files(*PRODUCTION)
        for name, count in facts(path).parameters
        if count > PARAMETERS
    }
    assert not too_many.keys() - MANY_PARAMETERS


def test_modules_are_named_by_what_they_do() -> None:
    vague = [
        name_of(path)
        for path in python_files(*PRODUCTION)
        if VAGUE_NAMES & {path.stem, path.parent.name, *path.stem.split("_")}
    ]
    assert not vague


def test_each_module_says_what_it_is() -> None:
    silent = [name_of(path) for path in python_files(*PRODUCTION) if not facts(path).says_what_it_is]
    assert not silent


FRAGMENT = re.compile(r"(?:Also|As|By|Into|Not|Of|Or|So|That|Those|To|Until|What of|Whose|With)\b.*")
SHORT = re.compile(r"(?:After|At|Before|Behind|Between|For|From|In|On|Over|Under|Without)\b[^.:;]{0,50}[.;]")
"""Begins what is half a sentence: the other half is the name above it, which a stranger has not read so."""


def test_docstrings_are_whole_sentences() -> None:
    planted = nodes('def f():\n "Of a batch."\nA = 1\n"""The latest time.\n\nOf a batch."""')
    assert list(map(bool, map(FRAGMENT.match, docstrings(planted)))) == [False, True]
    assert [*map(bool, map(SHORT.match, ["In ms.", "From a to b; in order.", "For a: b."]))] == [1, 1, 0]
    wrong = [
        f"{name_of(path)}: {found[0]}"
        for rule, folders in ((FRAGMENT, ALL), (SHORT, PRODUCTION))
        for path in python_files(*folders)
        for found in map(rule.match, facts(path).docstrings)
        if found
    ]
    assert not wrong, (
        "a docstring says what it is to somebody who sees it alone: not 'Of a batch, in ms.' but "
        "'The latest time of a batch, in ms.'; not 'Until it is done.' but 'Wait until it is done.'"
    )


# --- Tests --------------------------------------------------------------------------------------------


def test_each_module_has_its_tests_or_a_word_on_who_covers_it() -> None:
    modules = {"runtime.slot.slot", "runtime.slot.task", "cli.run", "fetch.choose", "produce.choose"}
    tests = {"unit.test_task", "unit.test_job", "unit.fetch.test_choose"}
    assert untested(modules, tests, [Covered("", "unit/test_job", "slot run produce.choose")]) == []
    assert untested(modules, tests, [Covered("", "unit/test_jobs", "slot task run choose")]) == [
        "no such test: unit/test_jobs",
        "task has a test of its name, or two entries",
        "2 modules are called choose",
    ]
    assert untested(modules, tests, []) == [
        "nobody says who tests cli.run",
        "nobody says who tests produce.choose",
        "nobody says who tests runtime.slot.slot",
    ]
    there = {
        name_of(path).removesuffix(".py").replace("/", ".")
        for path in python_files(*PRODUCTION)
        if path.stem != "__init__"
    }
    theirs = {name_of(path)[len("tests/") : -len(".py")].replace("/", ".") for path in python_files("tests")}
    wrong = untested(there, theirs, COVERED)
    assert not wrong, "write tests/unit/.../test_NAME.py, or say in tests/covered_elsewhere.py who covers it"


# --- What must not be here ----------------------------------------------------------------------------


def test_nothing_is_pickled_but_by_spark_and_for_states_that_ask_for_it() -> None:
    picklers = {"pickle", "cloudpickle", "dill", "marshal", "shelve"}
    wrong = [
        name_of(path)
        for path in python_files(*PRODUCTION)
        if "runtime/hosts/spark" not in name_of(path)
        and name_of(path) != "runtime/state/pickled_objects.py"
        and any(name.split(".")[0] in picklers for _, name in facts(path).imports)
    ]
    assert not wrong


def test_every_kafka_client_has_the_settings_of_kafka_options() -> None:
    planted = nodes(
        "AdminClient({'bootstrap.servers': 'a'}); Consumer(options.consumer({})); kafka.Producer(theirs)\n"
        "ours = options.admin(); AdminClient(ours); KafkaAdminClient(**kafka_python(options))"
    )
    assert unbounded_clients(planted) == {"AdminClient({'bootstrap.servers': 'a'})", "kafka.Producer(theirs)"}
    makes_none = {"connectors/kafka/setting_names.py"}  # asks librdkafka what it takes
    wrong = {
        name_of(path): found
        for path in python_files(*PRODUCTION)
        if name_of(path) not in makes_none and (found := facts(path).unbounded_clients)
    }
    assert not wrong, "KafkaOptions bounds how often a client connects: its admin(), consumer(), producer()"


PLANTED = {
    "a machine's own path": "/ro" + "ot/.cache/x",
    "a credential in a URL": "https://user" + ":secret@host/x",
    "a private key": "-----BEGIN RSA " + "PRIVATE KEY-----",
    "an access key": "AKIA" + "A" * 16,
    "a host of somebody's own network": "nexus.int" + "ernal",
}


@pytest.mark.parametrize("kind", NOT_HERE)
def test_nothing_of_one_machine_is_in_the_tree(kind: str) -> None:
    assert NOT_HERE[kind].search(PLANTED[kind])
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, timeout=240, check=True
    )
    found = []
    for name in filter(None, listed.stdout.split("\0")):
        path = ROOT / name
        if path.is_symlink() or not path.is_file():
            continue
        text = path.read_bytes().decode("utf-8", "replace")
        found += [f"{name}: {match[0]!r}" for match in NOT_HERE[kind].finditer(text)]
    assert not found


def test_the_checkpoint_folder_has_no_todo_and_others_have_an_issue() -> None:
    wrong = [
        f"{name_of(path)}: {line.strip()}"
        for path in python_files(*PRODUCTION)
        for line in path.read_text().splitlines()
        if re.search(r"#.*\b(?:TODO|FIXME|XXX)\b", line)
        and (path.parent.name == "checkpoint" or not re.search(r"#\d+", line))
    ]
    assert not wrong


# --- Decisions ----------------------------------------------------------------------------------------


def adrs_in(index: str) -> list[str]:
    """The files that have a whole line of the index for themselves: `| [80](0080-copies.md) | ...`."""
    lines = re.findall(
        r"^\| \[(\d+)\]\((\d{4}-[\w-]+\.md)\) \| [^|]+ \| [^|]+ \| [^|]+ \|$", index, re.MULTILINE
    )
    return [name for number, name in lines if int(number) == int(name[:4])]


def test_the_index_of_decisions_has_each_of_them() -> None:
    assert adrs_in(
        "| [8](0008-a.md) | a | b | c |\n| [9](0010-b.md) | a | b | c |\n| [9](0009-c.md) | a |"
    ) == ["0008-a.md"]
    folder = ROOT / "docs" / "adr"
    there = sorted(path.name for path in folder.glob("*.md") if path.name != "README.md")
    listed = adrs_in((folder / "README.md").read_text())
    numbers = [int(name[:4]) for name in there]
    assert len(numbers) == len(set(numbers)), "two decisions have the same number"
    assert listed == there, (
        "docs/adr/README.md: give each decision one line, in the order of the numbers, with what was decided "
        "in one sentence and its status; if it supersedes another, say so in both lines"
    )


# --- Imports and dependencies -------------------------------------------------------------------------


def test_import_is_fast_and_loads_nothing_heavy() -> None:
    script = (
        "import sys, time; start = time.process_time(); import onceflow; took = time.process_time() - start;"
        "heavy = {'pyspark', 'pyarrow', 'polars', 'numpy', 'confluent_kafka', 'rich', 'typer'} "
        "& sys.modules.keys();"
        "print(took, *heavy)"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, timeout=240, check=True
        )
        for _ in range(3)
    ]
    took, *heavy = min((run.stdout.split() for run in runs), key=lambda words: float(words[0]))
    assert heavy == []
    assert float(took) < IMPORT_S


def test_every_import_is_declared() -> None:
    """What is imported is a dependency of ours, or of an extra, and not only one of a dependency's."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = {
        re.split(r"[<>=!~ \[;]", requirement)[0].lower().replace("_", "-")
        for requirement in [*project["dependencies"], *chain(*project["optional-dependencies"].values())]
    }
    distributions = metadata.packages_distributions()
    missing = set()
    for path in python_files(*PRODUCTION):
        for _, name in facts(path).imports:
            top = name.split(".")[0]
            if top in sys.stdlib_module_names or top in {"onceflow", ""}:
                continue
            owners = {owner.lower().replace("_", "-") for owner in distributions.get(top, ())}
            if not owners & declared:
                missing.add(f"{name_of(path)}: {top}")
    assert not missing


def test_the_public_names_are_there() -> None:
    import onceflow

    for name in onceflow.__all__:
        assert getattr(onceflow, name) is not None
    with pytest.raises(AttributeError, match="nonsense"):
        _ = onceflow.nonsense


# --- Make ---------------------------------------------------------------------------------------------


def test_make_prints_its_targets() -> None:
    run = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, timeout=240, check=True)
    printed = set(re.findall(r"^  make ([\w-]+)", run.stdout, re.MULTILINE))
    makefile = (ROOT / "Makefile").read_text()
    phony = re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    assert phony is not None
    assert printed == set(phony[1].split())
    assert {"setup", "demo", "test", "check", "fast", "sim", "mutants", "bench", "wheel"} <= printed
    assert {"docs", "docs-site"} <= printed


def test_the_long_files_that_tests_begin_with_exist() -> None:
    """A file that was renamed would begin with the small ones, and end last, alone."""
    named = [
        ast.literal_eval(node.value)
        for node in tree(ROOT / "tests" / "conftest.py").body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "LONG_FILES"
    ]
    assert len(named) == 1
    assert [name for name in named[0] if not (ROOT / "tests" / name).exists()] == []
