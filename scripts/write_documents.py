"""Writes the pages and pictures of docs/ that are made from the program. A test says when one is old.

python scripts/write_documents.py
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from documents import cli_page, errors_page

ROOT = Path(__file__).resolve().parent.parent


def written() -> Mapping[Path, str]:
    """What is made: files of the repository, and what has to be in them."""
    reference = ROOT / "docs" / "reference"
    return {reference / "cli.md": cli_page.page(), reference / "errors.md": errors_page.page()}


def main() -> None:
    for path, text in written().items():
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
            print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
