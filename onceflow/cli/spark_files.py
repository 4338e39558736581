"""--archives and --py-files of `onceflow run`, as spark-submit has them: what Spark brings to the slots."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Annotated

import typer

from onceflow.runtime.errors import OptionError
from onceflow.runtime.nearest import nearest

ArchivesOption = Annotated[
    str | None,
    typer.Option(
        "--archives", metavar="FILE#NAME,...", help="Unpacked as NAME where slots run; as in spark-submit."
    ),
]
PyFilesOption = Annotated[
    str | None,
    typer.Option(
        "--py-files", metavar="FILE,...", help=".zip, .egg, .py for slots to import; as in spark-submit."
    ),
]

ARCHIVES, PY_FILES = "spark.archives", "spark.submit.pyFiles"
_OPTIONS = {ARCHIVES: "--archives", PY_FILES: "--py-files"}
_MODULES = (".zip", ".egg", ".py")


def with_files(
    settings: Mapping[str, str], master: str, archives: str | None, py_files: str | None
) -> dict[str, str]:
    """Spark's settings with what the two options say. Raises OptionError for a file that is not there, or
    that Spark would not take."""
    found = dict(settings)
    for name, value in ((ARCHIVES, archives), (PY_FILES, py_files)):
        if value is None:
            continue
        option = _OPTIONS[name]
        if master.startswith("threads"):
            raise OptionError(
                f"{option} brings files to slots on Spark, and with --master {master} they are threads of "
                "this process: leave it out"
            )
        if name in settings:
            raise OptionError(f"{option} and --conf {name}=… say the same: give one of them")
        found[name] = ",".join(_absolute(each, option) for each in value.split(",") if each)
    for path in found.get(PY_FILES, "").split(","):
        if path and not path.endswith(_MODULES):
            raise OptionError(
                f"--py-files {path}: Spark takes {', '.join(_MODULES)}; install a wheel where the slots run"
            )
    return found


def let_import(settings: Mapping[str, str]) -> None:
    """What --py-files brings to the slots can be imported here, too; the job's program is loaded after this.
    URLs can't: they are the slots' only."""
    paths = [Path(each) for each in settings.get(PY_FILES, "").split(",") if each and "://" not in each]
    sys.path[:0] = [str(path) for path in paths if path.suffix != ".py"]
    sys.meta_path.append(_Modules({path.stem: path for path in paths if path.suffix == ".py"}))


class _Modules(MetaPathFinder):
    """Finds single modules. Their folder is not in the path: what else lies there is not brought to slots."""

    def __init__(self, files: Mapping[str, Path]) -> None:
        self._files = files

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        file = self._files.get(fullname)
        return None if file is None else spec_from_file_location(fullname, file)


def _absolute(given: str, option: str) -> str:
    """A local path as an absolute one, with the name behind # that an archive may have; a URL as it is."""
    if "://" in given:
        return given
    path, mark, name = given.partition("#")
    file = Path(path).expanduser().absolute()
    if not file.is_file():
        folder = Path(path).parent
        beside = [str(each) for each in folder.iterdir() if each.is_file()] if folder.is_dir() else []
        raise OptionError(f"{option} {given}: there is no file {path}{nearest(path, beside)}")
    return f"{file}{mark}{name}"
