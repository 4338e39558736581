"""The options of the formats that ask a registry, which mean the same in each of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar, get_args

from onceflow.connectors.formats.registry.client import open_registry
from onceflow.connectors.formats.registry.schemas import (
    WRITTEN,
    LocalSchemas,
    RegisteredSchema,
    RegistrySchemas,
    SchemaKind,
    Schemas,
)
from onceflow.runtime.durations import duration_ms
from onceflow.runtime.errors import OptionError

Parsed = TypeVar("Parsed")
RegistryOption = str | Mapping[str, Any] | Mapping[int, Any]
"""The URL of a registry; settings of confluent-kafka's client by their own names; or schemas by id."""
Framing = Literal["confluent", "none"]
SubjectStrategy = Literal["topic", "record", "topic_record"]
"""What a subject is named by: `<topic>-value`, the record's full name, or `<topic>-<full name>`. Confluent's
TopicNameStrategy, RecordNameStrategy and TopicRecordNameStrategy."""


def check_registry(kind: SchemaKind, registry: Any, plain: str) -> None:
    """Raises OptionError for a registry that is none. `plain`: how to do without one."""
    form = WRITTEN[kind]
    if not registry:
        raise OptionError(f'{form} needs registry="http://..." or registry={{id: schema}}; or {plain}')
    if not isinstance(registry, str) and "url" not in registry:
        settings = [key for key in registry if isinstance(key, str)]
        if settings:
            raise OptionError(f'registry={{{settings[0]!r}: ...}} has no "url"')


def check_choices(on_null: object, framing: object, strategy: object) -> None:
    """Raises OptionError for what is none of the choices that there are."""
    if on_null not in ("error", "skip", "nulls"):
        raise OptionError(f'on_null={on_null!r}: write "error", "skip" or "nulls"')
    if framing not in get_args(Framing):
        raise OptionError(f'framing={framing!r}: write "confluent" or "none"')
    if strategy not in get_args(SubjectStrategy):
        raise OptionError(f'subject_strategy={strategy!r}: write "topic", "record" or "topic_record"')


def open_schemas(
    registry: Any, timeout: str | int, kind: SchemaKind, parse: Callable[[RegisteredSchema], Parsed]
) -> Schemas[Parsed]:
    """The schemas of a registry that was checked. Nothing is connected. Raises OptionError for a wrong
    setting."""
    if isinstance(registry, str):
        registry = {"url": registry}
    if "url" in registry:
        return RegistrySchemas(open_registry(registry, duration_ms(timeout, "registry_timeout")), kind, parse)
    return LocalSchemas(registry, kind, parse)


def subject_of(
    strategy: SubjectStrategy, topic: str, part: Literal["key", "value"], record: str, form: str
) -> str:
    """The subject of a topic's keys or values. `record`: the written record's full name; empty: it has none,
    which is refused where the strategy needs it."""
    if strategy == "topic":
        return f"{topic}-{part}"
    if not record:
        raise OptionError(
            f'subject_strategy={strategy!r} needs the name of the written record: say {form}(..., name="...")'
        )
    return record if strategy == "record" else f"{topic}-{record}"
