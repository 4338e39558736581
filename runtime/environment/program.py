"""The user's program as files: what lies beside it, which the slots import as the driver did."""

from __future__ import annotations

import os
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from onceflow.runtime.errors import OptionError, UsageError

BYTES_MAX = 256 << 20
"""The most bytes of all files beside a program: with more the folder is hardly a program's."""
_CODE = (".py", ".so", ".pyd")


@dataclass(frozen=True, slots=True)
class Program:
    """Where a job comes from.

    `module`: the file that was named, whose functions and classes travel to the slots by value: it need not
    be importable, and to import it again might run more than definitions. None: it is `__main__`. What it
    imports is imported by the slots from a copy of `folder`; None: only what is installed.
    """

    module: ModuleType | None = None
    folder: Path | None = None


NO_PROGRAM = Program()


_IMPORTED_TO_BE_RUN: ContextVar[bool] = ContextVar("imported to be run", default=False)


@contextmanager
def imported_to_be_run() -> Iterator[None]:
    """While a command imports a program whose job it is going to run: the program must not run it, too."""
    token = _IMPORTED_TO_BE_RUN.set(True)
    try:
        yield
    finally:
        _IMPORTED_TO_BE_RUN.reset(token)


def running_program() -> Program:
    """The program that runs its own job here, as in `python totals.py` or `python -m shop.totals`. Raises
    UsageError for one that is only being imported."""
    if _IMPORTED_TO_BE_RUN.get():
        raise UsageError(
            "the program runs its job while it is imported, and the command would run it once more: write "
            '`if __name__ == "__main__":` above job.run()'
        )
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    return Program(None, import_folder(main, "" if spec is None else spec.name))


def import_folder(module: ModuleType, name: str = "") -> Path | None:
    """The folder in which a module is found under this name (default: in its own folder); None if it is
    installed, or no file."""
    file = getattr(module, "__file__", None)
    if file is None or any(part in ("site-packages", "dist-packages") for part in Path(file).parts):
        return None
    path = Path(file).resolve()
    if path.name == "__init__.py" and not name.endswith("__main__"):
        path = path.parent
    return path.parents[name.count(".")]


def archive_modules(folder: Path, archive: Path) -> bool:
    """Write what can be imported from a folder into a zip file. False, and no file, if there is nothing.

    These are the modules in it, and the packages with all their files. Raises OptionError if that is more
    than BYTES_MAX.
    """
    files = list(_importable(folder))
    if sum(path.stat().st_size for path in files) > BYTES_MAX:
        raise OptionError(
            f"the modules and packages in {folder} are more than {BYTES_MAX >> 20} MiB, and slots get a copy "
            "of them: put the job's program into a folder of its own"
        )
    if files:
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as into:
            for path in files:
                into.write(path, path.relative_to(folder))
    return bool(files)


def _importable(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.is_dir():
            if _is_package(path):
                yield from _files(path)
        elif path.suffix in _CODE and _is_readable(path):
            yield path


def _is_package(folder: Path) -> bool:
    """One with an `__init__.py`, or one without that the program has imported. Never onceflow itself: it is
    installed where slots run, and in the same version."""
    if folder.name == "onceflow":
        return False
    loaded = sys.modules.get(folder.name)
    return _is_readable(folder / "__init__.py") or str(folder) in map(str, getattr(loaded, "__path__", ()))


def _files(package: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(package):
        folders[:] = sorted(name for name in folders if name != "__pycache__" and not name.startswith("."))
        yield from (path for name in sorted(names) if _is_readable(path := Path(folder, name)))


def _is_readable(path: Path) -> bool:
    """A file that the driver may read; what it may not, the program has not imported either."""
    return os.path.isfile(path) and os.access(path, os.R_OK)
