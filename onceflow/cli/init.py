"""`onceflow init NAME`: a project with a job, its tests, an image and CI."""

from __future__ import annotations

import re
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from string import Template
from typing import Annotated

import typer

from onceflow import __version__
from onceflow.runtime.errors import UsageError

app = typer.Typer(help="Make a project with a job and its tests.", add_completion=False)

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9._-]*")
_SUFFIX = ".template"


@app.command()
def init(
    name: Annotated[str, typer.Argument(help="Of the project, the job and the new folder.")],
    folder: Annotated[
        Path | None, typer.Option(help="Where to make it. Default: a folder of its name, here.")
    ] = None,
) -> None:
    """Make a folder with a job from Kafka to Kafka, tests of it that pass, a Dockerfile and CI."""
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"the name {name!r} can't be used: letters, digits, '.', '_' and '-', a letter first"
        )
    root = folder or Path(name)
    if root.exists() and any(root.iterdir()):
        raise UsageError(f"{root} is there and not empty: give another name, or --folder")
    values = {"name": name, "version": __version__}
    for file, text in _files(resources.files("onceflow.cli") / "project_template", ""):
        path = root / file.removesuffix(_SUFFIX)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(Template(text).substitute(values))
    typer.echo(f"made {root}: see its README.md; run its tests with: cd {root} && pytest")


def _files(folder: Traversable, prefix: str) -> list[tuple[str, str]]:
    """Path and text of each file of the template."""
    found: list[tuple[str, str]] = []
    for each in sorted(folder.iterdir(), key=lambda path: path.name):
        if each.is_dir():
            found += _files(each, f"{prefix}{each.name}/")
        elif each.name.endswith(_SUFFIX):
            found.append((f"{prefix}{each.name}", each.read_text()))
    return found
