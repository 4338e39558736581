"""Pure: states that have another name in the program than a checkpoint has them under."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import structs

from onceflow.runtime.errors import UsageError
from onceflow.runtime.state.description import StatePart
from onceflow.runtime.state.evolution.readers import Readers, names_kept_as


def renamed_parts(
    who: str, old: Mapping[str, StatePart], new: Mapping[str, StatePart], readers: Readers
) -> tuple[dict[str, StatePart], list[str]]:
    """What was kept, under the names that the program has for it, and what is to be said of that. `who`
    begins sentences. Raises UsageError if a state can mean several that were kept, or two mean one."""
    meant = names_kept_as(readers, new, old)
    parts, said = dict(old), []
    for name, names in meant.items():
        others = [each for each in meant if each != name and set(meant[each]) & set(names)]
        if len(names) > 1 or others:
            also = f", which state {others[0]!r} has, too" if others else ""
            raise UsageError(
                f"{who}: state {name!r} may be {' or '.join(map(repr, names))} by its former_names{also}: "
                "leave only the one whose content it is to keep"
            )
        said.append(f"{who}: state {name!r} keeps what was called {names[0]!r}")
        parts[name] = structs.replace(parts.pop(names[0]), name=name)
    return parts, said
