"""How a function becomes a kernel."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import platformdirs

_WITHOUT_REFERENCE_COUNTS: dict[str, Any] = {"_nrt": False}
"""An option that numba's documentation does not have; its own code for texts and sorting uses it."""

_IMPORTED = re.compile(r"^from (onceflow\.[\w.]+) import", re.MULTILINE)

Function = TypeVar("Function", bound=Callable[..., object])


def kernel(function: Function) -> Function:
    """A decorator: compiled at the first call with arguments of some types, then kept on disk for every
    later process of this machine. Call it with empty arrays when what uses it is made, so that no record
    waits for the compiler.

    Compiled code holds no GIL, checks no bounds, and its integers wrap around. It makes no arrays, which
    numba refuses at the first call: it fills those that it is given. So numba need not count who holds one,
    which it otherwise does, with two locked instructions, at each call from kernel to kernel (ADR 74).

    It may call kernels of this package and of files `*_kernels.py` beside its own, and use what those files
    import by `from module import ...`: the copy on disk is renewed when one of these changes, not others.
    Needs numba: ask `ops` (ops.py) before importing a file of kernels.
    """
    import numba

    from onceflow.runtime.kernels.cache_files import keep_by_types  # needs numba

    config: Any = vars(numba)["config"]  # made when it is imported: its names are in no stub
    before = config.CACHE_DIR
    config.CACHE_DIR = str(_cache_folder(Path(function.__code__.co_filename).parent))
    try:
        compiled = numba.njit(cache=True, nogil=True, **_WITHOUT_REFERENCE_COUNTS)(function)
    finally:
        config.CACHE_DIR = before  # read while decorating; the user's own setting stays
    keep_by_types(compiled)
    return cast(Function, compiled)


def kernels_folder() -> Path:
    """Where this machine keeps compiled kernels: a folder for each content of what they are made of."""
    return Path(platformdirs.user_cache_dir("onceflow")) / "kernels"


@functools.cache
def _cache_folder(folder: Path) -> Path:
    """The cache folder for this content of all that kernels of that folder are compiled from: numba itself
    notices changes of a kernel's own file only."""
    digest = hashlib.sha256()
    for source in sources_of(folder):
        digest.update(source.read_bytes())
    return kernels_folder() / digest.hexdigest()[:16]


def sources_of(folder: Path) -> list[Path]:
    """The files that kernels of this folder are compiled from: this package, the kernels there, and the
    modules from which those import, whose constants become part of the code."""
    kernels = sorted(folder.glob("*_kernels.py"))
    names = sorted({name for source in kernels for name in _IMPORTED.findall(source.read_text())})
    specs = map(importlib.util.find_spec, names)
    imported = [Path(spec.origin) for spec in specs if spec is not None and spec.origin is not None]
    return [*sorted(Path(__file__).parent.glob("*.py")), *kernels, *imported]
