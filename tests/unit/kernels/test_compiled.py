"""Kernels: when they are used, that they are kept on disk, and what they can read."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys

import numpy as np
import pytest

from onceflow.runtime.kernels.compiled import ENVIRONMENT_VARIABLE, kernel, kernels_enabled

PROGRAM = """
import sys
from onceflow.runtime.kernels.compiled import kernels_enabled
print(kernels_enabled(), "numba" in sys.modules)
"""


def test_the_environment_turns_kernels_off() -> None:
    assert _run(PROGRAM, {ENVIRONMENT_VARIABLE: "off"}) == "False False"


def test_without_numba_there_are_no_kernels() -> None:
    hidden = "import sys; sys.modules['numba'] = None" + PROGRAM
    assert _run(hidden, {}).startswith("False")


@pytest.mark.skipif(not kernels_enabled(), reason="needs numba")
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


def _run(program: str, environment: dict[str, str]) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env={**os.environ, **environment}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
