"""Which schema may follow which: the compatibility levels of a subject. Pure.

Avro is compared by its own rules of resolution. JSON Schema and Protobuf are compared field by field: types,
and what is required. A .proto text is not compared, since nothing here compiles it.
"""

from __future__ import annotations

from collections.abc import Sequence

from onceflow.connectors.formats.registry.compatibility import RULES, breaches
from onceflow.connectors.formats.registry.schemas import RegisteredSchema
from onceflow.connectors.kafka.embedded.registry.avro_rules import parsed, why_unread

DEFAULT_LEVEL = "BACKWARD"
"""Confluent's, too."""
LEVELS = ("NONE", *(f"{rule}{end}" for rule in RULES for end in ("", "_TRANSITIVE")))


def why_refused(level: str, new: RegisteredSchema, versions: Sequence[RegisteredSchema]) -> list[str]:
    """Why a schema may not be the next version of a subject, half a sentence each; empty if it may.

    `versions`: those that are there, the oldest first. Raises OptionError for a schema that is none.
    """
    if level == "NONE":
        return []
    compared = versions if level.endswith("_TRANSITIVE") else versions[-1:]
    return list(dict.fromkeys(said for old in reversed(compared) for said in _breaches(level, old, new)))


def _breaches(level: str, old: RegisteredSchema, new: RegisteredSchema) -> list[str]:
    if old.kind != new.kind:
        return [f"the schema before is of the type {old.kind}, and this one is {new.kind}"]
    if new.kind != "AVRO":
        return breaches(new.kind, level, old.text, new.text)
    before, after = parsed(old), parsed(new)
    base, found = level.removesuffix("_TRANSITIVE"), list[str]()
    if base in ("BACKWARD", "FULL"):
        found += why_unread(reader=after, writer=before)
    if base in ("FORWARD", "FULL"):
        found += why_unread(reader=before, writer=after)
    return found
