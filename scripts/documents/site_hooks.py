"""What `mkdocs build` does beyond Markdown: see mkdocs.yml and docs/adr/0102-site.md.

- CHANGELOG.md and CONTRIBUTING.md lie beside docs/, where people look for them, and are pages, too.
- A link from a page to a file of the repository that is no page leads to a copy of it in the site (a folder:
  to a list of what is in it). There is no public repository that it could lead to.
- Pictures of the benchmarks' results are copied into the site.
- The pictures of docs/pictures/ become part of their page, so that they are light or dark as the page is.
- In tables, `\\|` of code is a `|`, and a chain of calls may be broken before a dot.
- Options that a docstring describes one after the other are paragraphs of their own.
"""

from __future__ import annotations

import os
import posixpath
import re
from html import unescape
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
PAGES_OF_THE_ROOT = {"CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}
BENCHMARKS = "benchmarks/results/"
_LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)#\s]+)(?=[)#])")
_CODE_IN_A_ROW = re.compile(r"(?<=[| ])`[^`\n]*\\\|[^`\n]*`(?=.*\|$)", re.MULTILINE)
_CELL = re.compile(r"<td\b.*?</td>", re.DOTALL)
_CHAIN = re.compile(r"(?<=\))\.(?=[^<>]*<)")
_PARAGRAPH = re.compile(r"<p>.*?</p>", re.DOTALL)
_OPTION = re.compile(r"(?<=[.)])\s+(?=<code>\w+</code>(?:(?:,| and) <code>\w+</code>)*: )")
_PICTURE = re.compile(r'<img alt="([^"]*)" src="(?:\.\./)*pictures/([\w-]+\.svg)"\s*/?>')


def on_files(files: Files, config: Any) -> Files:
    for name, page in PAGES_OF_THE_ROOT.items():
        file = File.generated(config, page, content=(ROOT / name).read_text())
        files.append(file)
    for picture in ROOT.glob(f"{BENCHMARKS}*.svg"):
        name = picture.relative_to(ROOT).as_posix()
        files.append(File.generated(config, name, abs_src_path=str(picture)))
    for source in sorted(set().union(*(_sources(page) for page in files.documentation_pages()))):
        there = ROOT / source
        inside = "\n".join(sorted(path.name for path in there.iterdir())) if there.is_dir() else None
        content = there.read_text() if inside is None else inside
        files.append(File.generated(config, _copy(source), content=content))
    return files


def _sources(page: File) -> set[str]:
    """The files and folders of the repository that a page leads to and that are no pages."""
    found = (_target(match[1], page.src_uri) for match in _LINK.finditer(page.content_string))
    return {path for path in found if not _is_of_site(path) and _is_of_repository(path)}


def _copy(source: str) -> str:
    """Where a copy of it is in the site: a text, which a browser shows and does not store."""
    return f"source/{source}.txt"


def _target(link: str, page: str) -> str:
    """The path in the repository that a link of a page leads to."""
    root_names = {of_site: name for name, of_site in PAGES_OF_THE_ROOT.items()}
    place = root_names.get(page, f"docs/{page}")
    return posixpath.normpath(posixpath.join(posixpath.dirname(place), link))


def _is_of_site(path: str) -> bool:
    is_page = path.startswith("docs/") and not f"{path}/".startswith("docs/examples/")
    return is_page or path in PAGES_OF_THE_ROOT or (path.startswith(BENCHMARKS) and path.endswith(".svg"))


def _is_of_repository(path: str) -> bool:
    return not path.startswith("..") and (ROOT / path).exists()


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    return with_pipes(with_links(markdown, page.file.src_uri))


def with_pipes(markdown: str) -> str:
    """The text of a page with `|` in the code of its tables, where it is written `\\|`."""
    return _CODE_IN_A_ROW.sub(lambda code: code[0].replace("\\|", "|"), markdown)


def with_links(markdown: str, page: str) -> str:
    """The text of a page whose links to files that are no pages lead to their copies. One that leads nowhere
    stays as it is, and fails the build."""

    def of_site(match: re.Match[str]) -> str:
        path = _target(match[1], page)
        if _is_of_site(path):
            target = PAGES_OF_THE_ROOT.get(path, path.removeprefix("docs/"))
        elif _is_of_repository(path):
            target = _copy(path)
        else:
            return match[1]
        return os.path.relpath(target, posixpath.dirname(page) or ".")

    return _LINK.sub(of_site, markdown)


def on_page_content(html: str, page: Any, config: Any, files: Files) -> str:
    if page is not None and page.file.src_uri.startswith("reference/"):
        html = with_options_apart(html)
    return _CELL.sub(lambda cell: _CHAIN.sub("<wbr>.", cell[0]), _PICTURE.sub(_inlined, html))


def with_options_apart(html: str) -> str:
    """The text of a page on which each option that a docstring describes begins a paragraph."""
    return _PARAGRAPH.sub(lambda text: _OPTION.sub("</p>\n<p>", text[0]), html)


def _inlined(match: re.Match[str]) -> str:
    svg = (ROOT / "docs" / "pictures" / match[2]).read_text()
    if 'class="picture"' not in svg:  # has colours for one kind of page only
        return match[0]
    label = unescape(match[1]).replace('"', "&quot;")
    inside = svg[svg.index("<svg") :].replace("<svg", f'<svg role="img" aria-label="{label}"', 1).strip()
    return f'<span class="picture-frame">{inside}</span>'
