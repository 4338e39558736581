"""The librdkafka that confluent_kafka has loaded, called directly: its public C interface.

For what that package does one Python object at a time. Only functions and structs of rdkafka.h are
used; the one thing taken from the package's own inside is where a client keeps its handle, and that
is verified for each client before it is used.
"""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
from confluent_kafka import Consumer, Producer

_KINDS = {0: "producer", 1: "consumer"}
"""The kinds of clients, by rd_kafka_type_t."""
_NAME_BYTES = 128
_POINTER_BYTES = 8
TESTED = (0x0210,)
"""The minor versions (2.16) that all was tried with. What may change with another one is how a transaction
ends: from EndTxn 5 on (KIP-890) each commit gives the producer another epoch, so that it is in doubt after
each, and opened anew for each checkpoint."""


class UnsupportedLibraryError(Exception):
    """Why librdkafka can't be called directly here: the message ends the sentence "..., because"."""


class CMessage(ctypes.Structure):
    """rd_kafka_message_t. `payload` of an error is its text."""

    _fields_ = (
        ("err", ctypes.c_int32),
        ("rkt", ctypes.c_void_p),
        ("partition", ctypes.c_int32),
        ("payload", ctypes.c_void_p),
        ("len", ctypes.c_size_t),
        ("key", ctypes.c_void_p),
        ("key_len", ctypes.c_size_t),
        ("offset", ctypes.c_int64),
        ("_private", ctypes.c_void_p),
    )


_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "rd_kafka_version": (ctypes.c_int, []),
    "rd_kafka_name": (ctypes.c_void_p, [ctypes.c_void_p]),
    "rd_kafka_type": (ctypes.c_int, [ctypes.c_void_p]),
    "rd_kafka_last_error": (ctypes.c_int, []),
    "rd_kafka_queue_new": (ctypes.c_void_p, [ctypes.c_void_p]),
    "rd_kafka_queue_destroy": (None, [ctypes.c_void_p]),
    "rd_kafka_queue_forward": (None, [ctypes.c_void_p, ctypes.c_void_p]),
    "rd_kafka_queue_get_partition": (
        ctypes.c_void_p,
        [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int32],
    ),
    "rd_kafka_consume_batch_queue": (
        ctypes.c_ssize_t,
        [ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t],
    ),
    "rd_kafka_message_destroy": (None, [ctypes.c_void_p]),
    "rd_kafka_message_timestamp": (ctypes.c_int64, [ctypes.c_void_p, ctypes.c_void_p]),
    "rd_kafka_message_leader_epoch": (ctypes.c_int32, [ctypes.c_void_p]),
    "rd_kafka_message_headers": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_void_p]),
    "rd_kafka_header_get_all": (
        ctypes.c_int,
        [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p],
    ),
    "rd_kafka_topic_name": (ctypes.c_char_p, [ctypes.c_void_p]),
    "rd_kafka_topic_new": (ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]),
    "rd_kafka_topic_destroy": (None, [ctypes.c_void_p]),
    "rd_kafka_produce_batch": (
        ctypes.c_int,
        [ctypes.c_void_p, ctypes.c_int32, ctypes.c_int, ctypes.c_void_p, ctypes.c_int],
    ),
    "rd_kafka_produceva": (ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]),
    "rd_kafka_error_code": (ctypes.c_int, [ctypes.c_void_p]),
    "rd_kafka_error_destroy": (None, [ctypes.c_void_p]),
    "rd_kafka_outq_len": (ctypes.c_int, [ctypes.c_void_p]),
    "rd_kafka_queue_get_main": (ctypes.c_void_p, [ctypes.c_void_p]),
    "rd_kafka_queue_poll": (ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_int]),
    "rd_kafka_event_type": (ctypes.c_int, [ctypes.c_void_p]),
    "rd_kafka_event_error": (ctypes.c_int, [ctypes.c_void_p]),
    "rd_kafka_event_error_string": (ctypes.c_char_p, [ctypes.c_void_p]),
    "rd_kafka_event_error_is_fatal": (ctypes.c_int, [ctypes.c_void_p]),
    "rd_kafka_event_message_count": (ctypes.c_size_t, [ctypes.c_void_p]),
    "rd_kafka_event_message_next": (ctypes.c_void_p, [ctypes.c_void_p]),
    "rd_kafka_event_stats": (ctypes.c_char_p, [ctypes.c_void_p]),
    "rd_kafka_event_log": (
        ctypes.c_int,
        [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p],
    ),
    "rd_kafka_event_destroy": (None, [ctypes.c_void_p]),
}


class Library:
    """The functions of librdkafka, by their own names. Each call lets other threads run while it lasts."""

    def __init__(self, path: str) -> None:
        """Raises UnsupportedLibraryError if it is not the library that confluent_kafka uses."""
        try:
            loaded = ctypes.CDLL(path)
            for name, (result, arguments) in _SIGNATURES.items():
                function = getattr(loaded, name)
                function.restype, function.argtypes = result, arguments
                setattr(self, name, function)
        except (OSError, AttributeError) as error:
            raise UnsupportedLibraryError(f"{path} can't be used: {error}") from error
        version: int = self.rd_kafka_version()
        if version != confluent_kafka.libversion()[1]:
            raise UnsupportedLibraryError(f"{path} is another version than confluent_kafka's own")

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"{name} is not in _SIGNATURES")

    def address_of(self, function: str) -> int:
        """Where a function's code is: for kernels."""
        address = ctypes.cast(getattr(self, function), ctypes.c_void_p).value
        assert address is not None
        return address

    def headers(self, address: int) -> list[tuple[bytes, bytes | None]]:
        """Names and values of a message's headers."""
        headers, name, value, size = (
            ctypes.c_void_p(),
            ctypes.c_char_p(),
            ctypes.c_void_p(),
            ctypes.c_size_t(),
        )
        if self.rd_kafka_message_headers(address, ctypes.byref(headers)) != 0:
            return []  # there are none
        found: list[tuple[bytes, bytes | None]] = []
        places = tuple(map(ctypes.byref, (name, value, size)))
        while self.rd_kafka_header_get_all(headers, len(found), *places) == 0:
            content = ctypes.string_at(value.value, size.value) if value.value else None
            found.append((name.value or b"", content))
        return found

    def handle(self, client: Consumer | Producer, client_id: str) -> int:
        """The rd_kafka_t of a consumer or producer that was made with this client.id.

        It is the first field after the object's head in every version of confluent_kafka so far. It
        counts only if memory is there and librdkafka's name for it is that of such a client; else
        UnsupportedLibraryError, and nothing has been touched.
        """
        found = _read_memory(id(client) + object.__basicsize__, _POINTER_BYTES)
        handle = int.from_bytes(found or b"", sys.byteorder)
        if not handle or handle % _POINTER_BYTES or _read_memory(handle, _POINTER_BYTES) is None:
            raise UnsupportedLibraryError("confluent_kafka keeps a client's handle elsewhere")
        name = _read_memory(self.rd_kafka_name(handle), _NAME_BYTES)  # an address within the handle
        kind = "producer" if isinstance(client, Producer) else "consumer"
        expected = f"{client_id}#{kind}-".encode()[: _NAME_BYTES - 1]
        if name is None or not name.startswith(expected) or _KINDS[self.rd_kafka_type(handle)] != kind:
            raise UnsupportedLibraryError(f"what should be a {kind}'s handle is something else")
        return handle


def load_library() -> Library:
    """The library that this process has loaded already. Raises UnsupportedLibraryError."""
    if platform.python_implementation() != "CPython" or ctypes.sizeof(ctypes.c_void_p) != _POINTER_BYTES:
        raise UnsupportedLibraryError("this is not a 64-bit CPython")
    paths = [path for path in dict.fromkeys(_loaded_libraries()) if "librdkafka" in Path(path).name]
    if len(paths) != 1:
        raise UnsupportedLibraryError(f"{len(paths)} libraries called librdkafka are loaded")
    return Library(paths[0])


def _loaded_libraries() -> Iterator[str]:
    """Paths of the shared libraries in this process, some more than once."""
    if sys.platform == "linux":
        for line in Path("/proc/self/maps").read_text().splitlines():
            parts = line.split(maxsplit=5)
            if len(parts) == 6 and parts[5].startswith("/"):
                yield parts[5]
    elif sys.platform == "darwin":
        system = ctypes.CDLL(None)
        system._dyld_get_image_name.restype = ctypes.c_char_p
        for index in range(system._dyld_image_count()):
            yield os.fsdecode(system._dyld_get_image_name(index) or b"")


def _read_memory(address: int, count: int) -> bytes | None:
    """The bytes there, or None if nothing is mapped there: the system answers, no signal is raised."""
    system = ctypes.CDLL(None)
    system.write.restype = ctypes.c_ssize_t
    system.write.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t]
    source, sink = os.pipe()
    try:
        written: int = system.write(sink, address, count)
        return os.read(source, count) if written == count else None
    finally:
        os.close(source)
        os.close(sink)
