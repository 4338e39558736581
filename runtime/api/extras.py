"""Which packages of an optional part of a distribution (`pip install 'onceflow[avro]'`) are not installed."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, distribution

_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)\s*(?:\[([^]]*)\])?[^;]*(?:;(.*))?")
_EXTRA_ALONE = re.compile(r"""\s*extra\s*==\s*["']([^"']+)["']\s*""")


def missing_packages(package: str, extra: str) -> list[str]:
    """Names of the packages that this extra of an installed package needs and that are not there.

    Versions are pip's matter; what only some Pythons or systems need is taken for there.
    """
    missing = []
    for requirement in distribution(package).requires or ():
        match = _REQUIREMENT.match(requirement)
        if match is None or not match[3]:
            continue
        of_extra = _EXTRA_ALONE.fullmatch(match[3])
        if of_extra is not None and of_extra[1] == extra:
            missing += _missing(match[1], match[2] or "")
    return missing


def _missing(name: str, extras: str) -> list[str]:
    try:
        distribution(name)
    except PackageNotFoundError:
        return [name]
    wanted = [extra.strip() for extra in extras.split(",") if extra.strip()]
    return [package for extra in wanted for package in missing_packages(name, extra)]
