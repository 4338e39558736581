"""Draw the terminal of a recorded `make demo` as an SVG: docs/pictures/demo.svg in the README.

script -qec 'stty cols 100; make demo' demo.recording
.venv/bin/python scripts/demo_picture.py demo.recording docs/pictures/demo.svg

The recording is what the terminal got, bytes as they came; the picture has the screen at the end of it.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

COLUMNS = 100
COMMAND = "$ make demo"
# One control sequence, one control character, or the text up to the next of them.
_PIECES = re.compile(r"\x1b\[([?\d;]*)([A-Za-z])|([\r\n])|([^\x1b\r\n]+)|\x1b.")
# Fonts would be fetched from another host, by everybody who looks at the picture.
_FONT_FACES = re.compile(r"@font-face \{\{.*?\}\}\n", re.DOTALL)


def screen(recording: str) -> list[str]:
    """The lines of the terminal at the end, with their colours as escape sequences.

    Knows what rich writes: lines that are written anew as a whole, after the cursor went up and they were
    erased.
    """
    lines, row = [""], 0
    for arguments, verb, control, text in _PIECES.findall(recording):
        if control == "\n":
            row += 1
        elif verb == "A":
            row = max(row - int(arguments or 1), 0)
        elif verb == "K":
            lines[row] = ""
        elif verb == "m":
            lines[row] += f"\x1b[{arguments}m"
        else:
            lines[row] += text
        lines += [""] * (row + 1 - len(lines))
    return [line for line in lines if Text.from_ansi(line).plain.strip()]


def draw(lines: list[str]) -> str:
    """The picture of these lines."""
    with Path("/dev/null").open("w") as nowhere:
        console = Console(record=True, width=COLUMNS, file=nowhere, force_terminal=True)
        console.print(Text(COMMAND, "bold"))
        for line in lines:
            console.print(Text.from_ansi(line), soft_wrap=False)
        frame = _FONT_FACES.sub("", CONSOLE_SVG_FORMAT)
        return console.export_svg(title="make demo", code_format=frame, unique_id="demo")


def main() -> None:
    recording, picture = map(Path, sys.argv[1:])
    shown = recording.read_bytes().decode(errors="replace")  # read_text would take out carriage returns
    lines = [line for line in screen(shown) if not re.match(r"Script (started|done)", line)]
    picture.write_text(draw(lines))


if __name__ == "__main__":
    main()
