"""What a savepoint's `savepoint.json` holds, and how it is read and written.

A savepoint is a folder with this file, which is created last. Of a copied one the manifest's paths are
relative to that folder, which can be moved and copied as a whole. Of a pinned one they are relative to the
checkpoint folder of the job, in which the savepoint's folder is `savepoints/<id>` (`pins.py`). No output
travels with either: a savepoint is taken of a checkpoint that is known to be committed, so whoever starts
from it begins a lineage of his own and commits nothing of the old one's.
"""

from __future__ import annotations

import zlib

import msgspec

from onceflow.runtime.checkpoint.log import decode_checked, encode_checked
from onceflow.runtime.checkpoint.manifest import CheckpointManifest, check_version

RECORD_NAME = "savepoint.json"


class Savepoint(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The content of `savepoint.json`. `taken_of` is the folder of the job, as its user named it; `parent`
    the id of the savepoint that this folder was started from, or ""."""

    format_version: int
    savepoint_id: str
    taken_of: str
    parent: str
    onceflow: str
    taken_ms: int
    manifest: CheckpointManifest
    is_pinned: bool = False
    """Whether the state files are the job's own, and not copies."""


def encode_savepoint(taken: Savepoint) -> bytes:
    """The content of `savepoint.json`: one JSON object, with a checksum of all before it at its end."""
    return encode_checked(msgspec.json.encode(taken))


def decode_savepoint(content: bytes, where: str) -> Savepoint:
    """Strictly. Raises CorruptCheckpointError; UsageError if a newer onceflow wrote it."""
    taken = decode_checked(content, Savepoint, where)
    check_version(taken.format_version, where)
    return taken


def program_digits(manifest: CheckpointManifest) -> str:
    """Eight digits of the program that took it: the same for the same operators with state, computed alike,
    and the same sources; whatever its file is called. "" if it is not described (an older onceflow)."""
    if not manifest.operators:
        return ""
    kept = {"operators": manifest.operators, "sources": sorted(manifest.splits)}
    return f"{zlib.crc32(msgspec.json.encode(kept, order='sorted')):08x}"
