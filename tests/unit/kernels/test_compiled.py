"""Kernels: what their machine code is kept for, and what they can read."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import onceflow
from onceflow.runtime.kernels.compiled import kernel, sources_of
from onceflow.runtime.kernels.ops import ops


def test_what_kernels_import_is_part_of_what_their_machine_code_is_kept_for() -> None:
    """Constants are compiled in: old machine code would read fields in another order where they are not."""
    root = Path(onceflow.__file__).parent
    found = {path.resolve() for path in sources_of(root / "connectors" / "kafka" / "records")}
    for name in ("records/section.py", "records/read_kernels.py", "fetched.py"):
        assert (root / "connectors" / "kafka" / name).resolve() in found
    assert (root / "runtime" / "kernels" / "varints.py").resolve() in found
    assert (root / "connectors" / "kafka" / "records" / "batch_writer.py").resolve() not in found


def test_kernels_call_only_kernels_beside_them_or_of_the_runtime() -> None:
    root = Path(onceflow.__file__).parent
    for path in [*root.glob("connectors/**/*_kernels.py"), *root.glob("runtime/**/*_kernels.py")]:
        home = "onceflow." + ".".join(path.parent.relative_to(root).parts)
        for name in re.findall(r"^from (onceflow[\w.]+_kernels) import", path.read_text(), re.MULTILINE):
            assert name.rpartition(".")[0] == home, f"{path.name}: what kernels share is in runtime.kernels"


@pytest.mark.skipif(not ops().are_compiled, reason="needs numba")
def test_a_kernel_reads_copies_and_calls_by_address() -> None:
    from onceflow.runtime.kernels.memory import call_with_pointer, copy_bytes, load_int64

    @kernel
    def sum_copy_and_call(source: int, target: int, count: int, function: int) -> int:
        total = 0
        for i in range(count):
            total += load_int64(source + 8 * i)
        copy_bytes(target, source, 8 * count)
        call_with_pointer(function, source)
        return total

    numbers = np.arange(1, 11)
    copy = np.zeros(10, np.int64)
    called: list[int | None] = []
    callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(called.append)
    function = ctypes.cast(callback, ctypes.c_void_p).value
    assert sum_copy_and_call(numbers.ctypes.data, copy.ctypes.data, 10, function) == 55
    assert copy.tolist() == numbers.tolist()
    assert called == [numbers.ctypes.data]


@pytest.mark.skipif(not ops().are_compiled, reason="needs numba")
def test_kernels_hand_arrays_to_each_other_without_counting_references() -> None:
    @kernel
    def put(target: npt.NDArray[np.int64], at: int, number: int) -> int:
        while number > 0:  # a loop: what has none is inlined, counts and all
            target[at] = number & 1
            number >>= 1
            at += 1
        return at

    @kernel
    def put_all(target: npt.NDArray[np.int64], numbers: npt.NDArray[np.int64]) -> int:
        at = 0
        for number in numbers:
            at = put(target, at, number)
        return at

    target = np.zeros(8, np.int64)
    assert put_all(target, np.array([5, 2])) == 5
    assert target.tolist() == [1, 0, 1, 0, 1, 0, 0, 0]
    machine_code: Any = put_all
    assert not [name for name in ("NRT_incref", "NRT_decref") if name in str(machine_code.inspect_asm())]


@pytest.mark.skipif(not ops().are_compiled, reason="needs numba")
def test_a_kernel_that_makes_an_array_is_refused() -> None:
    from numba.core.errors import NumbaError

    @kernel
    def make(count: int) -> int:
        made = np.empty(count, np.int64)
        made[0] = count
        return int(made[0])

    with pytest.raises(NumbaError, match=r"np\.empty|function empty"):
        make(3)
