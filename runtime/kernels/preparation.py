"""Every kernel made ready ahead of its use: compiled if this machine has not yet, loaded if it has."""

from __future__ import annotations

import importlib
import importlib.util

from onceflow.runtime.kernels.compiled import kernels_folder
from onceflow.runtime.kernels.ops import are_off, ops

PREPARATIONS = (
    "onceflow.runtime.exchange.kernel_preparation",
    "onceflow.connectors.formats.kernel_preparation",
    "onceflow.connectors.kafka.librdkafka.kernel_preparation",
    "onceflow.connectors.kafka.produce.kernel_preparation",
    "onceflow.connectors.kafka.records.kernel_preparation",
)
"""Modules by name, since they are above this package. Each has a function `prepare` that calls its kernels
with next to nothing, with arguments of the types that they get later."""


def are_prepared() -> bool:
    """Whether the first job has nothing to compile: this machine has kernels, or they are off. A quick look
    that loads no compiler, for a word to people: kernels of another version count, too."""
    is_off = are_off() or importlib.util.find_spec("numba") is None
    return is_off or (kernels_folder().is_dir() and any(kernels_folder().iterdir()))


def prepare_kernels() -> None:
    """Nothing if kernels are off. Spark's daemon calls it before it forks slots, which then have them
    all; `onceflow kernels` when a machine or an image is set up. Starts no thread."""
    if ops().are_compiled:
        for name in PREPARATIONS:
            importlib.import_module(name).prepare()
