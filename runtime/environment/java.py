"""Finding the Java that Spark and the embedded broker run on, or saying in one sentence what to do."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from onceflow.runtime.errors import UsageError

REQUIRED_JAVA = 17
_INSTALL = (
    "install it with 'sudo apt install openjdk-17-jre-headless' (Debian, Ubuntu), "
    "'sudo dnf install java-latest-openjdk-headless' (Fedora) or 'brew install openjdk@21' (macOS), "
    "or point JAVA_HOME to it"
)


class JavaError(UsageError):
    """Raised if there is no Java, or it is too old: says which is needed, which was found, how to install
    it."""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that is new enough. `version` is its own full version string, as in "17.0.15"."""

    executable: Path
    version: str


def find_java(environment: Mapping[str, str] | None = None) -> Java:
    """The Java of JAVA_HOME, else the first on PATH; JavaError if it can't serve. Takes about 50 ms."""
    variables = os.environ if environment is None else environment
    home = variables.get("JAVA_HOME")
    candidate = f"{home}/bin/java" if home else shutil.which("java", path=variables.get("PATH"))
    if candidate is None or not os.access(candidate, os.X_OK):
        where = f"JAVA_HOME={home} has no bin/java" if home else "none was found"
        raise JavaError(f"Java {REQUIRED_JAVA} or newer is needed, and {where}: {_INSTALL}")
    said = subprocess.run([candidate, "-version"], capture_output=True, text=True, check=False)
    match = re.search(r'version "([^"]+)"', said.stderr + said.stdout)
    if match is None:  # macOS has a /usr/bin/java that only says where to get one
        raise JavaError(
            f"Java {REQUIRED_JAVA} or newer is needed, and {candidate} is not a working Java: {_INSTALL}"
        )
    version = match.group(1)
    if _major(version) < REQUIRED_JAVA:
        raise JavaError(
            f"Java {REQUIRED_JAVA} or newer is needed, and {candidate} is Java {version}: {_INSTALL}"
        )
    return Java(Path(candidate), version)


def _major(version: str) -> int:
    """17 of "17.0.15", 8 of "1.8.0_392", 25 of "25-ea"."""
    numbers = [int(part) for part in re.findall(r"\d+", version)[:2]]
    return numbers[1] if numbers[0] == 1 and len(numbers) > 1 else numbers[0]
