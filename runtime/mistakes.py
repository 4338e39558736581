"""What went wrong in the user's program, as one sentence with the user's line and the nearest right name."""

from __future__ import annotations

import sys
import sysconfig
import traceback
from pathlib import Path

from onceflow.runtime.errors import UsageError
from onceflow.runtime.nearest import nearest

_OURS = tuple(
    Path(folder, part).resolve()
    for folder in sys.modules["onceflow"].__path__
    for part in ("", "runtime", "connectors", "sinks")  # links, where it is installed from its repository
)

_PYTHONS = tuple(Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib"))
_PACKAGES = ("site-packages", "dist-packages")


def with_users_line(error: UsageError) -> UsageError:
    """A sentence of ours, beginning with the line of the program that it is about."""
    if line := _users_line(error):
        error.args = (f"{line}: {error}",)
    return error


def as_sentence(error: Exception, where: str) -> UsageError:
    """Any other error of the program's. `where`: what is named if no line of it is to be found."""
    line = _users_line(error) or where
    if isinstance(error, SyntaxError):
        return UsageError(f"{error.filename}:{error.lineno}: {error.msg}")
    if isinstance(error, AttributeError) and (told := _about_a_name(error)):
        return UsageError(f"{line}: {told}")
    return UsageError(f"{line}: {type(error).__name__}: {error}")


def has_users_line(error: Exception) -> bool:
    """Whether it was raised in the program, or in what the program called."""
    return bool(_users_line(error))


def _users_line(error: Exception) -> str:
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not _is_machinery(f.filename)]
    own = [f for f in frames if not _is_ours(f.filename)]
    # A package that the program called is not the program, unless the program itself is such a package.
    nearest_own = [f for f in own if not _is_installed(f.filename)] or own
    return f"{nearest_own[-1].filename}:{nearest_own[-1].lineno}" if own else ""


def _is_machinery(filename: str) -> bool:
    """Whether a file is Python's own: its library, or code made of text, as a dataclass's `__init__`."""
    if filename.startswith("<"):
        return True
    path = Path(filename).resolve()
    return not _is_installed(filename) and any(path.is_relative_to(folder) for folder in _PYTHONS)


def _is_installed(filename: str) -> bool:
    return any(part in _PACKAGES for part in Path(filename).parts)


def _is_ours(filename: str) -> bool:
    return any(Path(filename).resolve().is_relative_to(folder) for folder in _OURS)


def _about_a_name(error: AttributeError) -> str:
    """A method or an attribute that an object of ours has not."""
    owner = error.obj if isinstance(error.obj, type) else type(error.obj)
    if error.name is None or not owner.__module__.startswith("onceflow."):
        return ""
    if str(error).startswith(f"a {owner.__name__} has no "):
        return str(error)  # it says what to write instead
    names = [each for each in dir(error.obj) if not each.startswith("_")]
    return f"a {owner.__name__} has no {error.name!r}{nearest(error.name, names)}"
