"""Every snippet of the documents runs, every link leads somewhere, and what they list is what the code has.

A ```python block is executed; a `job` that it leaves behind is built. With title="name.py" behind it, it is a
file that other blocks of the page import. A ```py block with the title of an example is a part of it, and its
own tests run it; the page has it whole, for those who have no more than the page, and its blocks import it.
A ```console block is for eyes, unless its first line is `$ # runnable`: then each of its commands has to end
with exit code 0. tests/integration/test_tutorial.py follows the tutorial.
"""

from __future__ import annotations

import ast
import importlib
import os
import re
import subprocess
import sys
import types
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path

import pytest
import typer.main

from onceflow.cli.app import COMMANDS
from onceflow.cli.metrics import JobMetrics
from onceflow.runtime.api.job import Job
from onceflow.runtime.report import JobProgress
from tests.deployment_page import commands

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "benchmarks").rglob("*.md")),
]
COUNTERS = (
    "records_in",
    "records_out",
    "late_records",
    "dead_letters",
    "failed_records",
    "paused_splits",
    "watermark_ms",
    "max_event_time_ms",
)


@dataclass(frozen=True)
class Snippet:
    """A fenced block of a document."""

    document: Path
    line: int
    kind: str
    text: str
    title: str = ""
    """The name of the file that it is."""

    def __str__(self) -> str:
        return f"{self.document.relative_to(ROOT)}:{self.line}"


def snippets(kind: str) -> list[Snippet]:
    found = []
    for document in DOCUMENTS:
        text = document.read_text()
        for match in re.finditer(r"^```(\w+)([^\n]*)\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
            if match[1] == kind:
                title = re.search(r'title="([\w./]+)"', match[2])
                line = text.count("\n", 0, match.start()) + 1
                found.append(Snippet(document, line, kind, match[3], title[1] if title else ""))
    return found


@pytest.mark.parametrize("snippet", snippets("python"), ids=str)
def test_each_python_block_runs_and_builds_its_job(snippet: Snippet) -> None:
    files = [s for s in snippets("python") if s.document == snippet.document and s.title and s != snippet]
    parts = [(Path(file.title).stem, file) for file in files]
    running = as_modules([*parts, (f"snippet_{abs(hash(str(snippet)))}", snippet)])
    with importable_examples(), running as ran:
        for value in list(vars(ran).values()):
            if isinstance(value, Job):
                assert value.build().chains


def parts_of_examples() -> list[Snippet]:
    return [s for s in snippets("py") if s.title and (ROOT / "examples" / s.title).is_file()]


@pytest.mark.parametrize("snippet", parts_of_examples(), ids=str)
def test_each_part_of_an_example_is_in_it_and_the_page_has_it_whole(snippet: Snippet) -> None:
    whole = f'--8<-- "examples/{snippet.title}"\n'
    assert snippet.text == whole or snippet.text in (ROOT / "examples" / snippet.title).read_text()
    assert whole in snippet.document.read_text()


@pytest.mark.parametrize("snippet", snippets("python"), ids=str)
def test_what_a_block_imports_is_on_its_page_or_in_the_wheel(snippet: Snippet) -> None:
    imported = re.findall(r"^(?:from|import) ([\w.]+)", snippet.text, re.MULTILINE)
    assert not [name for name in imported if name.split(".")[0] in ("examples", "docs", "tests")]
    for name in imported:
        if (ROOT / "examples" / f"{name}.py").is_file():
            assert f'--8<-- "examples/{name}.py"\n' in snippet.document.read_text(), (
                f"{name} is not there whole"
            )


@contextmanager
def importable_examples() -> Iterator[None]:
    """Examples can be imported by their names alone, as a reader has saved them."""
    before = set(sys.modules)
    sys.path.insert(0, str(ROOT / "examples"))
    try:
        yield
    finally:
        sys.path.remove(str(ROOT / "examples"))
        for name in set(sys.modules) - before:
            if Path(getattr(sys.modules[name], "__file__", None) or "").parent == ROOT / "examples":
                del sys.modules[name]


@contextmanager
def as_modules(parts: Iterable[tuple[str, Snippet]]) -> Iterator[types.ModuleType]:
    """Run each as the module of its name, which those behind it can import. Yields the last."""
    made: dict[str, types.ModuleType] = {}
    try:
        for name, part in parts:
            made[name] = sys.modules[name] = types.ModuleType(name)  # where annotations are looked up
            exec(compile(part.text, str(part), "exec"), vars(made[name]))
        yield made[name]
    finally:
        for name in made:
            del sys.modules[name]


@pytest.mark.parametrize("folder", ["", "docs", "docs/how-to", "docs/coming-from"])
def test_there_is_something_to_run(folder: str) -> None:
    assert any(snippet.document.parent == ROOT / folder for snippet in snippets("python"))


@pytest.mark.parametrize("snippet", snippets("console") or [None], ids=str)
def test_each_runnable_console_block_succeeds(snippet: Snippet | None, tmp_path: Path) -> None:
    if snippet is None or not snippet.text.startswith("$ # runnable"):
        pytest.skip("nothing to run")
    for line in snippet.text.splitlines()[1:]:
        if line.startswith("$ "):
            path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
            run = subprocess.run(
                line[2:],
                shell=True,
                cwd=tmp_path,
                env={**os.environ, "PATH": path},
                capture_output=True,
                text=True,
                timeout=240,
                check=False,
            )
            assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda d: str(d.relative_to(ROOT)))
def test_links_and_file_names_lead_somewhere(document: Path) -> None:
    text = document.read_text()
    links = [link for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text) if "://" not in link]
    named = re.findall(
        r"`((?:runtime|connectors|sinks|tests|docs|docker|examples|benchmarks)/[\w./*-]+)`", text
    )
    missing = [link for link in links if not (document.parent / link).exists()]
    missing += [name for name in named if not list(ROOT.glob(name.rstrip("/")))]
    assert not missing


def test_the_commands_and_options_in_the_documents_exist() -> None:
    """`onceflow run … --option`: of every command that is named in a document."""
    wrong = []
    for document in DOCUMENTS:
        for command, rest in re.findall(r"\bonceflow (\w[\w-]*)([^\n`|]*)", document.read_text()):
            if command not in COMMANDS:
                if re.search(
                    rf"`onceflow {command}|^ +onceflow {command}", document.read_text(), re.MULTILINE
                ):
                    wrong.append(f"{document.name}: onceflow {command}")
                continue
            said = help_of(command)
            ours = rest.split(" -- ")[0]
            wrong += [
                f"{document.name}: {command} {o}"
                for o in re.findall(r"(?<!\w)--[a-z-]+", ours)
                if o not in said
            ]
    assert not wrong


def help_of(command: str) -> set[str]:
    """The options of a command and its subcommands."""
    click = typer.main.get_command(importlib.import_module(COMMANDS[command][0]).app)
    parameters = [p for c in (click, *getattr(click, "commands", {}).values()) for p in c.params]
    return {option for p in parameters for option in (*p.opts, *p.secondary_opts)} | {"--help"}


def stray_quotes(text: str) -> list[str]:
    """Words with a quote that opens or closes nothing: a docstring was joined as code is."""
    words = text.split()
    return [word for word in words if word in ('"', "'")] if text.count('"') % 2 == 0 else [text]


def help_texts() -> dict[str, str]:
    """What `--help` of each command and subcommand says, options included."""
    told = {}
    for name, (module, line) in COMMANDS.items():
        click = typer.main.get_command(importlib.import_module(module).app)
        for command in [click, *getattr(click, "commands", {}).values()]:
            options = [getattr(parameter, "help", None) or "" for parameter in command.params]
            told[f"{name} {command.name}"] = " ".join([line, command.help or "", *options])
    return told


def test_no_help_text_has_stray_quotes() -> None:
    assert stray_quotes('notices and is " "safe.') != []
    assert stray_quotes('As in "1 s" or "100 ms".') == []
    texts = help_texts()
    assert "transactions abort" in texts
    assert not [f"{command}: {quote}" for command, text in texts.items() for quote in stray_quotes(text)]


def test_every_option_of_run_is_explained() -> None:
    text = (ROOT / "docs/operations.md").read_text() + (ROOT / "README.md").read_text()
    assert not [o for o in help_of("run") if o.startswith("--") and f"`{o}" not in text and o != "--help"]


SAYING = (
    "runtime/driver/driver.py",
    "runtime/api/job.py",
    "runtime/checkpoint/chosen_start.py",
    "runtime/checkpoint/log_notices.py",
    "runtime/checkpoint/scale.py",
    "runtime/checkpoint/events.py",
    "runtime/checkpoint/coordinator.py",
    "runtime/checkpoint/driver.py",
    "runtime/checkpoint/savepoints/starting.py",
    "runtime/driver/encryption.py",
)
"""Where events come from."""


def test_every_event_and_every_field_of_progress_is_documented() -> None:
    text = (ROOT / "docs/events.md").read_text()
    told = {"metrics_started", "progress"}
    for name in SAYING:
        for node in ast.walk(ast.parse((ROOT / name).read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(
                ("_announce", ".event", "Announce")
            ):
                told |= {
                    a.value for a in node.args[:1] if isinstance(a, ast.Constant) and isinstance(a.value, str)
                }
    assert len(told) > 10
    listed = re.findall(r"^\| `(\w+)` \|", text.split("## checkpoint_completed")[0], re.MULTILINE)
    assert sorted(listed) == sorted(told)  # and none of them twice
    assert not [f.name for f in fields(JobProgress) if f"`{f.name}`" not in text]
    assert not [name for name in COUNTERS if f"`{name}`" not in text]


def test_every_metric_is_documented() -> None:
    metrics = JobMetrics(lambda: 0.0)
    metrics.on_event("checkpoint_completed", {"alignment_ms": 1, "in_flight_bytes": 1})
    counters = dict.fromkeys(COUNTERS, 1)
    metrics.on_progress(
        JobProgress(
            "j", "running", None, 0, 1, 0, 0, 0.0, 0.0, 0, 0, 1, 1, 1, 1, 1, task_counters={"t": counters}
        )
    )
    text = (ROOT / "docs/operations.md").read_text()
    for family in metrics.collect():
        short = family.name.rsplit("_", 1)[1]
        assert family.name in text or f"…{short}" in text or f"…{short.removeprefix('numRecords')}" in text


def test_every_decision_is_numbered_once() -> None:
    numbers = [path.name.split("-")[0] for path in (ROOT / "docs/adr").glob("*.md")]
    assert len(numbers) == len(set(numbers))
    mentioned = re.findall(
        r"docs/adr/([\w-]+\.md)", "".join(p.read_text() for p in ROOT.glob("runtime/**/*.py"))
    )
    mentioned += re.findall(r"docs/adr/([\w-]+\.md)", (ROOT / "pyproject.toml").read_text())
    assert not [name for name in mentioned if not (ROOT / "docs/adr" / name).exists()]


def test_the_commands_for_containers_are_those_of_the_compose_file() -> None:
    """The commands that test_containers.py runs are made of the same words."""
    told = re.sub(r"\\?\n# +", " ", (ROOT / "docker/compose.yaml").read_text().split("\nname:")[0])
    for command in commands("In containers"):
        assert " ".join(command.split()) in " ".join(told.split())
