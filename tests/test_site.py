"""The site of the documents builds, strictly, and needs no other host; no generated page is old."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

from documents import site_hooks  # noqa: E402 - scripts/ is a folder of programs, not a package
from write_documents import written  # noqa: E402


def build(root: Path, site: Path) -> subprocess.CompletedProcess[str]:
    """`make docs-site`, into another folder."""
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(site)],
        cwd=root,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    run = build(ROOT, folder)
    assert run.returncode == 0, run.stdout + run.stderr
    return folder


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium or google-chrome in the path")
@pytest.mark.parametrize("page", ["index.html", "reference/job.html"])
def test_the_search_finds_in_a_folder_without_a_server(page: str, site: Path, tmp_path: Path) -> None:
    """The browser has no network. Its clock runs ahead while it waits, and stops when all has happened."""
    address = f"{(site / page).as_uri()}?q=watermark"
    options = ("--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=60000", "--dump-dom")
    run = subprocess.run(
        [str(CHROMIUM), *options, "--proxy-server=127.0.0.1:9", f"--user-data-dir={tmp_path}", address],
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    found = re.findall(r'href="([^"]+)" class="md-search-result__link"', run.stdout)
    assert f"{(site / 'time.html').as_uri()}?h=watermark" in found, run.stderr


class Loaded(HTMLParser):
    """What a browser loads with a page: scripts, styles, pictures."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        if tag == "link" and given.get("rel") in ("canonical", "next", "prev"):
            return
        wanted = given.get("src") or (given.get("href") if tag == "link" else None)
        self.found += [wanted] if wanted else []


def from_elsewhere(text: str) -> list[str]:
    return [name for name in Loaded(text).found if re.match(r"(?:https?:)?//", name)]


def test_a_page_loads_nothing_from_other_hosts(site: Path) -> None:
    assert from_elsewhere('<script src="https://x.org/a.js"></script><a href="https://x.org">') != []
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 40
    assert not [(page.name, found) for page in pages if (found := from_elsewhere(page.read_text()))]
    styles = [style for style in site.rglob("*.css") if re.search(r"url\((?:https?:)?//", style.read_text())]
    assert not styles


def test_every_page_is_in_the_site_and_in_its_menu(site: Path) -> None:
    """mkdocs itself refuses a page that the menu has not (`validation` in mkdocs.yml)."""
    there = {page.relative_to(site).as_posix() for page in site.rglob("*.html")}
    pages = [page.relative_to(ROOT / "docs") for page in (ROOT / "docs").rglob("*.md")]
    assert not [page for page in pages if place_of(page) not in there]
    menu = (site / "index.html").read_text()
    assert not [page for page in pages if page.parts[0] == "reference" and f'"{place_of(page)}"' not in menu]


def place_of(page: Path) -> str:
    """Where the site has a page of docs/."""
    return page.with_name("index.html" if page.stem == "README" else f"{page.stem}.html").as_posix()


FAULTS = {
    "[gone](no-such-page.md)": "no-such-page.md",
    "[gone](kafka.md#no-such-heading)": "no-such-heading",
    "[gone](../scripts/no-such-script.py)": "no-such-script.py",
}


@pytest.mark.parametrize("faults", [FAULTS, {"::: onceflow.NoSuchName": "NoSuchName"}], ids=["links", "name"])
def test_a_broken_page_fails_the_build(faults: dict[str, str], tmp_path: Path) -> None:
    """A site of two pages, one of which has these lines."""
    for name in ("mkdocs.yml", "pyproject.toml", "CHANGELOG.md", "CONTRIBUTING.md"):
        shutil.copy(ROOT / name, tmp_path / name)
    shutil.copytree(ROOT / "scripts" / "documents", tmp_path / "scripts" / "documents")
    (tmp_path / "onceflow").symlink_to(ROOT / "onceflow")
    (tmp_path / "docs").mkdir()
    for name in ("CHANGELOG.md", "CONTRIBUTING.md"):
        (tmp_path / name).write_text("# Root\n")
    (tmp_path / "docs" / "kafka.md").write_text("# Kafka\n")
    (tmp_path / "docs" / "index.md").write_text(f"# Start\n\n[whole](kafka.md)\n\n{' '.join(faults)}\n")
    config = (tmp_path / "mkdocs.yml").read_text()
    config = re.sub(r"^watch:.*\n", "", config, flags=re.MULTILINE)
    (tmp_path / "mkdocs.yml").write_text(config)
    run = build(tmp_path, tmp_path / "built")
    assert run.returncode != 0
    assert not [said for said in faults.values() if said not in run.stdout + run.stderr]


def test_links_that_leave_the_pages_lead_to_copies() -> None:
    page = "[a](../runtime/errors.py) [b](kafka.md#x) [c](adr/README.md) [d](../benchmarks/results) [e](#f)"
    assert site_hooks.with_links(page, "index.md") == (
        "[a](source/runtime/errors.py.txt) [b](kafka.md#x) [c](adr/README.md) "
        "[d](source/benchmarks/results.txt) [e](#f)"
    )
    assert site_hooks.with_links("[a](docs/kafka.md) [b](CONTRIBUTING.md)", "changelog.md") == (
        "[a](kafka.md) [b](contributing.md)"
    )
    assert site_hooks.with_links("[a](../../CHANGELOG.md)", "adr/0001-layout.md") == "[a](../changelog.md)"
    assert site_hooks.with_links("[a](../gone.py)", "index.md") == "[a](../gone.py)"


def test_code_in_a_table_has_its_pipes_and_may_be_broken_between_calls() -> None:
    page = "| `X \\| None` | `int \\| str` |\n\nOutside: `a \\| b`\n"
    assert site_hooks.with_pipes(page) == "| `X | None` | `int | str` |\n\nOutside: `a \\| b`\n"
    html = "<td><code>a.key_by(k).map(f)</code></td><p>f().g()</p>"
    broken = "<td><code>a.key_by(k)<wbr>.map(f)</code></td><p>f().g()</p>"
    assert site_hooks.on_page_content(html, None, None, None) == broken


def test_each_option_of_a_docstring_has_a_paragraph() -> None:
    html = "<p><code>of</code>: a type. <code>at</code>, <code>to</code>: where. See <code>x</code>.</p>"
    apart = (
        "<p><code>of</code>: a type.</p>\n<p><code>at</code>, <code>to</code>: where. See <code>x</code>.</p>"
    )
    assert site_hooks.with_options_apart(html) == apart
    assert site_hooks.with_options_apart("<td>. <code>of</code>: a</td>") == "<td>. <code>of</code>: a</td>"


def rows_without_a_head(text: str) -> list[str]:
    """Rows of tables behind an empty line, which Markdown shows as text: only a head may stand there."""
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"\n\n(\|.*)\n(?!\| *:?---)", prose)


def test_each_row_of_a_table_is_in_its_table() -> None:
    assert rows_without_a_head("a\n\n| b |\n| --- |\n| c |\n\n| d |\n") == ["| d |"]
    pages = (ROOT / "docs").rglob("*.md")
    assert not [(page.name, row) for page in pages for row in rows_without_a_head(page.read_text())]


def test_what_is_made_from_the_program_is_new() -> None:
    old = [path.name for path, text in written().items() if path.read_text() != text]
    assert not old, "run: python scripts/write_documents.py"
