"""Headers of HTTP requests, as users write them. Pure, but for the environment that it is given."""

from __future__ import annotations

import string
from collections.abc import Mapping

from onceflow.runtime.errors import Fatal


def headers_with_variables(
    headers: Mapping[str, str], environment: Mapping[str, str], where: str
) -> dict[str, str]:
    """The headers, with each `${NAME}` in a value replaced by that variable of the environment, so that no
    program holds a secret. Raises Fatal, which names `where`, for a variable that is not there."""
    try:
        return {name: string.Template(value).substitute(environment) for name, value in headers.items()}
    except KeyError as error:
        raise Fatal(
            f"{where}: a header names the environment variable {error.args[0]!r}, which is not set "
            "where the slots run: set it there"
        ) from error
