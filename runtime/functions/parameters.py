"""A job's parameters: declared in the program, given when it is run, read by functions as `ctx.params`.

The driver's process resolves them once, before anything starts. They travel to the slots with the launch, as
the job's own secret does, and are in no checkpoint. A secret is shown nowhere: not by the plan, which does
not read it, and not by what a slot says, from which its text is taken out (`Parameters.redact`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from onceflow.runtime.errors import GraphError, UsageError
from onceflow.runtime.explained_calls import explained
from onceflow.runtime.nearest import nearest
from onceflow.runtime.redaction import HIDDEN, redacted

_TYPES = (str, int, float, bool)


class Secret:
    """A text that is not shown: `reveal()` gives it, str() and repr() do not."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The text, for whom it is meant."""
        return self._text

    def __repr__(self) -> str:
        return f"Secret({HIDDEN})"

    __str__ = __repr__


@dataclass(frozen=True, slots=True)
class SecretSource:
    """Where the driver finds a secret; made by `secret`."""

    env: str | None
    file: str | None


@explained
def secret(env: str | None = None, file: str | None = None) -> SecretSource:
    """Declares a parameter that is a secret: `Job(params={"token": secret(env="API_TOKEN")})`.

    The driver's process reads it from this environment variable or this file (without the line's end), where
    it was not given by `ONCEFLOW_PARAM_<NAME>`, a params file or `job.run(params=)`. In a function
    `ctx.params["token"]` is a Secret, and `.reveal()` its text.
    """
    if env is not None and file is not None:
        raise GraphError("secret(...): name an environment variable or a file, not both")
    return SecretSource(env, file)


Declared = Mapping[str, Any]
"""What a program declares, by name: a default, whose type is the parameter's; a type, for one that must be
given; a SecretSource."""


def check_declared(params: Mapping[str, Any] | None) -> Declared:
    """What a program declares. Raises GraphError for what can't be a parameter."""
    for name, value in (params or {}).items():
        if not (isinstance(name, str) and name.replace("-", "_").isidentifier()):
            raise GraphError(f"parameter {name!r}: use letters, digits, '_' and '-'")
        if not (isinstance(value, (*_TYPES, SecretSource)) or value in _TYPES):
            raise GraphError(
                f"parameter {name!r} is {value!r}: give a text, a number or a bool, which is its default; a "
                "type (str, int, float, bool), if it must be given; or secret(...)"
            )
    return dict(params or {})


class Parameters:
    """The values, by name. Picklable; what is secret in it is not shown by anything but `Secret.reveal`."""

    def __init__(self, values: Mapping[str, Any] | None = None) -> None:
        self._values = dict(values or {})
        self._hidden = {v.reveal() for v in self._values.values() if isinstance(v, Secret)}

    def __getitem__(self, name: str) -> Any:
        """The value, of the type of its default; a Secret for a secret. Raises UsageError for a name that the
        job does not declare."""
        if name not in self._values:
            there = ", ".join(self._values) or "none"
            raise UsageError(
                f"there is no parameter {name!r}{nearest(name, self._values)}; there are: {there}. Declare "
                f'it, as in Job(..., params={{"{name}": ...}})'
            )
        return self._values[name]

    def get(self, name: str, default: Any = None) -> Any:
        """The value, or `default` if there is no such parameter."""
        return self._values.get(name, default)

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"Parameters({self._values!r})"

    def redact(self, text: str) -> str:
        """The text with *** in the place of each secret."""
        return redacted(text, self._hidden)


NO_PARAMS = Parameters()


def shown(declared: Any) -> str:
    """A declared parameter in a plan: its type and default. Of a secret only that it is one."""
    if isinstance(declared, SecretSource):
        return "secret"
    return declared.__name__ if isinstance(declared, type) else f"{type(declared).__name__} = {declared!r}"
