"""Writes the table of types into docs/types.md, from the table that the tests run.

python scripts/write_types_table.py
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "docs" / "types.md"
BEGIN = "<!-- written by scripts/write_types_table.py -->\n"
END = "<!-- end -->\n"


def with_table(document: str, table: str) -> str:
    """The document with this table in the place of its own."""
    before, _, rest = document.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table}\n{END}{after}"


def main() -> None:
    sys.path.insert(0, str(ROOT))
    table = importlib.import_module("tests.conformance.types_table").written_table()
    DOCUMENT.write_text(with_table(DOCUMENT.read_text(), table))


if __name__ == "__main__":
    main()
