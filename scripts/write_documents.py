"""Writes the pages and pictures of docs/ that are made from the program. A test says when one is old.

python scripts/write_documents.py
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

from documents import cli_page, errors_page
from documents.pictures import alignment, checkpoint, crashes, svg, watermarks, windows

ROOT = Path(__file__).resolve().parent.parent


def written() -> Mapping[Path, str]:
    """What is made: files of the repository, and what has to be in them."""
    docs = ROOT / "docs"
    drawn = (alignment, checkpoint, crashes, watermarks, windows)
    pictures = {docs / "pictures" / f"{_name(each)}.svg": each.picture() for each in drawn}
    return pictures | {
        docs / "reference" / "cli.md": cli_page.page(),
        docs / "reference" / "errors.md": errors_page.page(),
        docs / "stylesheets" / "pictures.css": svg.stylesheet(),
    }


def _name(module: ModuleType) -> str:
    return module.__name__.split(".")[-1]


def main() -> None:
    for path, text in written().items():
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
            print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
