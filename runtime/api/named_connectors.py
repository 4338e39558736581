"""Sources, sinks and formats by name, of all packages that are installed: entry points say where each is.

A package offers its own in its pyproject.toml, and nobody has to import it to find it:

    [project.entry-points."onceflow.sinks"]
    clickhouse = "onceflow_clickhouse:ClickHouseSink"
    clickhouse-fast = "onceflow_clickhouse.fast:Sink [fast]"   # needs an extra of the package
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from onceflow.runtime.api.extras import missing_packages
from onceflow.runtime.errors import UsageError
from onceflow.runtime.explained_calls import explained
from onceflow.runtime.nearest import nearest


@dataclass(frozen=True)
class Kind:
    """What can be found: the group of its entry points, and a method that tells it from anything else."""

    name: str
    group: str
    has: str


KINDS: Mapping[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind("source", "onceflow.sources", "open_reader"),
        Kind("sink", "onceflow.sinks", "open_writer"),
        Kind("format", "onceflow.formats", "decoder"),
    )
}


@dataclass(frozen=True)
class Offered:
    """A connector that an installed package offers. Nothing of it is imported yet."""

    kind: Kind
    name: str
    package: str
    version: str
    entry_point: EntryPoint

    @property
    def whence(self) -> str:
        return f"{self.package} {self.version}"

    @property
    def place(self) -> str:
        """Where it is, as in `package.module:Name`."""
        return f"{self.entry_point.module}:{self.entry_point.attr}"

    @property
    def needs(self) -> str | None:
        """The command that installs what it needs and what is not there; None: all is there."""
        if missing := [each for each in self.entry_point.extras if missing_packages(self.package, each)]:
            return f"pip install '{self.package}[{','.join(missing)}]'"
        return None

    def load(self) -> Any:
        """What makes the connector: a class or a function. Raises UsageError with the reason if it can't be
        imported."""
        try:
            return self.entry_point.load()
        except Exception as error:  # whatever a package raises while it is imported
            advice = self.needs or "install what it needs, or ask its author"
            raise UsageError(
                f"{self.kind.name} {self.name!r} of {self.whence} can't be imported from {self.place}: "
                f"{type(error).__name__}: {error}: {advice}"
            ) from error


def offered(kind: str) -> list[Offered]:
    """All of a kind (source, sink or format), by name, and by package where several have one name."""
    found = []
    for point in entry_points(group=KINDS[kind].group):
        package, version = (point.dist.name, point.dist.version) if point.dist else ("?", "?")
        found.append(Offered(KINDS[kind], point.name, package, version, point))
    return sorted(found, key=lambda each: (each.name, each.package))


@explained
def load_source(name: str, /, *arguments: Any, **options: Any) -> Any:
    """The source of this name, made with these options, for `job.source(...)`.

    `onceflow connectors` lists the names, of other packages too. Raises UsageError.
    """
    return _made("source", name, arguments, options)


@explained
def load_sink(name: str, /, *arguments: Any, **options: Any) -> Any:
    """The sink of this name, made with these options, for `stream.sink_to(...)`. Raises UsageError."""
    return _made("sink", name, arguments, options)


@explained
def load_format(name: str, /, *arguments: Any, **options: Any) -> Any:
    """The format of this name, made with these options, for a source or a sink that takes one. Raises
    UsageError."""
    return _made("format", name, arguments, options)


def _made(kind: str, name: str, arguments: Sequence[Any], options: Mapping[str, Any]) -> Any:
    found = _found(kind, name)
    make = found.load()
    where = f"{kind} {name!r} of {found.whence}"
    _check_options(where, make, arguments, options)
    made = make(*arguments, **options)
    if isinstance(made, type) or not hasattr(made, found.kind.has):
        raise UsageError(
            f"{where} is no {kind}: {found.place} gives a {type(made).__name__} without {found.kind.has}: "
            "ask its author"
        )
    return made


def _found(kind: str, name: str) -> Offered:
    everything = offered(kind)
    found = [each for each in everything if each.name == name]
    if len(found) == 1:
        return found[0]
    if found:
        packages = " and ".join(each.whence for each in found)
        raise UsageError(
            f"{kind} {name!r} is offered by {packages}: uninstall one of them, or import what you mean from "
            f"{' or '.join(each.place for each in found)}"
        )
    names = list(Counter(each.name for each in everything))
    listed = ", ".join(names) or "none: run `pip install onceflow` again, which writes down its own"
    raise UsageError(f"there is no {kind} {name!r}{nearest(name, names)}: installed are {listed}")


def _check_options(where: str, make: Any, arguments: Sequence[Any], options: Mapping[str, Any]) -> None:
    try:
        signature = inspect.signature(make)
    except (TypeError, ValueError):
        return  # written in C: it tells itself
    takes_any = any(each.kind is each.VAR_KEYWORD for each in signature.parameters.values())
    known = list(signature.parameters)
    for option in options:
        if option not in known and not takes_any:
            raise UsageError(
                f"{where} has no option {option!r}{nearest(option, known)}: it has {', '.join(known)}"
            )
    try:
        signature.bind(*arguments, **options)
    except TypeError as error:
        raise UsageError(f"{where} can't be made: {error}: it takes {', '.join(known)}") from error
