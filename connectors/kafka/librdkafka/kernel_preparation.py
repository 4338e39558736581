"""Calls the kernels of the fetcher: see runtime/kernels/preparation.py. Makes no client, so no thread."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from onceflow.connectors.kafka.librdkafka import message_kernels as kernels
from onceflow.connectors.kafka.librdkafka.library import CMessage


def prepare() -> None:
    """No message, with arrays of the fetcher's types."""
    messages, none = np.zeros(1, np.int64), 0
    kernels.survey(
        messages,
        none,
        np.zeros((1, 3), np.int64),
        np.zeros((1, 2), np.int64),
        np.zeros(kernels.COUNTS, np.int64),
    )
    for width in (np.int32, np.int64):
        starts: npt.NDArray[Any] = np.zeros(1, width)
        kernels.gather(messages, none, CMessage.payload.offset, starts, np.zeros(0, np.uint8), none)
    kernels.read_offsets(messages, none, np.zeros(0, np.int64))
    times, kinds = np.zeros(0, np.int64), np.zeros(0, np.int8)
    kernels.read_timestamps(messages, none, none, times, np.zeros(1, np.int32), kinds)
    starts, valid = np.zeros(1, np.int32), np.zeros(0, np.uint8)
    calls = np.zeros(kernels.HEADER_CALLS, np.int64)
    kernels.survey_headers(messages, calls, starts, np.zeros(kernels.HEADER_COUNTS, np.int64))
    kernels.gather_headers(messages, calls, starts, starts, none, starts, none, valid)
    kernels.destroy(messages, none, none)
