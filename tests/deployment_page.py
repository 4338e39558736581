"""docs/deployment.md as the tests read it: its commands, unit and program, and what it says of failures."""

from __future__ import annotations

import configparser
import re
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "deployment.md"
PLACEHOLDERS = {
    "HOST": r"\S+",
    "PORT": r"\d+",
    "PATH": r"\S+",
    "NAME": r"\S+",
    "VERSION": r"[\d.]+",
    "…": ".*",
}


def commands(heading: str) -> list[str]:
    """The commands below a heading, each as one line of a shell."""
    return [command for block in _blocks(heading, "console") for command in _commands(block)]


def program(heading: str) -> str:
    """The one program below a heading."""
    (text,) = _blocks(heading, "py")
    return text


def unit(heading: str) -> configparser.ConfigParser:
    """The one systemd unit below a heading."""
    (text,) = _blocks(heading, "ini")
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # names keep their case
    parser.read_string(text)
    return parser


def said(what: str) -> re.Pattern[str]:
    """What the job says where that is missing, by the row of the table that begins with `what`."""
    rows = [line.split(" | ") for line in PAGE.read_text().splitlines() if line.startswith(f"| {what} |")]
    ((_, sentence),) = rows
    text = sentence.removesuffix(" |")
    parts = re.split(rf"({'|'.join(PLACEHOLDERS)})", text)
    return re.compile("".join(PLACEHOLDERS.get(part, re.escape(part)) for part in parts))


def _section(heading: str) -> str:
    """From its heading to the next one, of whatever level."""
    text = PAGE.read_text()
    (found,) = re.findall(rf"^##+ {re.escape(heading)}$(.*?)(?=^##+ |\Z)", text, re.MULTILINE | re.DOTALL)
    return str(found)


def _blocks(heading: str, kind: str) -> list[str]:
    found = re.findall(rf"^```{kind}\n(.*?)^```$", _section(heading), re.MULTILINE | re.DOTALL)
    assert found, f"no {kind} below {heading!r}"
    return found


def _commands(block: str) -> list[str]:
    joined = re.sub(r" \\\n\s+", " ", block)
    return [line.removeprefix("$ ") for line in joined.splitlines() if line.startswith("$ ")]
