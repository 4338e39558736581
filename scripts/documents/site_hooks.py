"""What `mkdocs build` does beyond Markdown: see mkdocs.yml and docs/adr/0102-site.md.

- CHANGELOG.md and CONTRIBUTING.md lie beside docs/, where people look for them, and are pages, too.
- A link from a page to a file of the repository that is no page leads to that file in the repository.
- Pictures of the benchmarks' results are copied into the site.
- The pictures of docs/pictures/ become part of their page, so that they are light or dark as the page is.
"""

from __future__ import annotations

import os
import posixpath
import re
import tomllib
from html import unescape
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
PAGES_OF_THE_ROOT = {"CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}
BENCHMARKS = "benchmarks/results/"
_LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)#\s]+)(?=[)#])")
_PICTURE = re.compile(r'<img alt="([^"]*)" src="(?:\.\./)*pictures/([\w-]+\.svg)"\s*/?>')


def repository() -> str:
    """The address of the repository, which pyproject.toml has."""
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]
    return str(urls["Repository"])


def on_files(files: Files, config: Any) -> Files:
    for name, page in PAGES_OF_THE_ROOT.items():
        file = File.generated(config, page, content=(ROOT / name).read_text())
        files.append(file)
    for picture in ROOT.glob(f"{BENCHMARKS}*.svg"):
        name = picture.relative_to(ROOT).as_posix()
        files.append(File.generated(config, name, abs_src_path=str(picture)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    return with_links(markdown, page.file.src_uri)


def with_links(markdown: str, page: str) -> str:
    """The text of a page whose links to files that are no pages lead to the repository. One that leads
    nowhere stays as it is, and fails the build."""
    root_names = {of_site: name for name, of_site in PAGES_OF_THE_ROOT.items()}
    place = root_names.get(page, f"docs/{page}")

    def of_site(match: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(posixpath.dirname(place), match[1]))
        if path in PAGES_OF_THE_ROOT or (
            path.startswith("docs/") and not f"{path}/".startswith("docs/examples/")
        ):
            target = PAGES_OF_THE_ROOT.get(path, path.removeprefix("docs/"))
            return os.path.relpath(target, posixpath.dirname(page) or ".")
        if path.startswith(BENCHMARKS) and path.endswith(".svg"):
            return os.path.relpath(path, posixpath.dirname(page) or ".")
        there = ROOT / path
        if path.startswith("..") or not there.exists():
            return match[1]
        return f"{repository()}/{'tree' if there.is_dir() else 'blob'}/main/{path}"

    return _LINK.sub(of_site, markdown)


def on_page_content(html: str, page: Any, config: Any, files: Files) -> str:
    return _PICTURE.sub(_inlined, html)


def _inlined(match: re.Match[str]) -> str:
    svg = (ROOT / "docs" / "pictures" / match[2]).read_text()
    if 'class="picture"' not in svg:  # has colours for one kind of page only
        return match[0]
    label = unescape(match[1]).replace('"', "&quot;")
    inside = svg[svg.index("<svg") :].replace("<svg", f'<svg role="img" aria-label="{label}"', 1).strip()
    return f'<span class="picture-frame">{inside}</span>'
