"""KernelFiles: processes that compile one kernel for other types at once, and what is on disk then."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

caching = pytest.importorskip("numba.core.caching")
cache_files = pytest.importorskip("onceflow.runtime.kernels.cache_files")
FLOATS, INTEGERS = ("array(float64, 1d, C)", "cpu", "code"), ("array(int64, 1d, C)", "cpu", "code")


def two_at_once(kind: Any, folder: Path) -> Any:
    """The files after a process has kept one kind of types, and another one, which had read the index before,
    the other; the index is that of the first, which was slower to write it."""

    def files() -> Any:
        return kind(cache_path=str(folder), filename_base="kernel", source_stamp=1)

    first = files()
    first.save(FLOATS, "code of floats")
    index = folder / first._index_name
    of_first = index.read_bytes()
    index.unlink()
    files().save(INTEGERS, "code of integers")
    index.write_bytes(of_first)
    return files()


def test_code_of_other_types_is_never_loaded(tmp_path: Path) -> None:
    found = two_at_once(cache_files.KernelFiles, tmp_path)
    assert found.load(FLOATS) == "code of floats"
    assert found.load(INTEGERS) is None, "it is compiled once more"
    found.save(INTEGERS, "code of integers")
    assert (found.load(FLOATS), found.load(INTEGERS)) == ("code of floats", "code of integers")


def test_numbers_alone_would_do_harm(tmp_path: Path) -> None:
    """What this is for: without it the code of integers runs over floats."""
    assert two_at_once(caching.IndexDataCacheFile, tmp_path).load(FLOATS) == "code of integers"


def test_all_kernels_are_kept_so() -> None:
    from onceflow.runtime.kernels import taking  # made where numba is

    dispatchers = [each for each in vars(taking).values() if hasattr(each, "_cache")]
    assert dispatchers
    assert all(isinstance(each._cache._cache_file, cache_files.KernelFiles) for each in dispatchers)
