"""A drawing: shapes and words as SVG, in colours with a name that are light or dark as the reader's page."""

from __future__ import annotations

from html import escape

LIGHT = {
    "ink": "#1f2d33",
    "soft": "#5d6f78",
    "line": "#c3ced3",
    "paper": "#ffffff",
    "wash": "#eef3f5",
    "blue": "#1f6f8b",
    "orange": "#b9501a",
    "green": "#4b7d34",
    "red": "#b3261e",
}
DARK = {
    "ink": "#e3ebee",
    "soft": "#9fb0b8",
    "line": "#43535b",
    "paper": "#1b2529",
    "wash": "#26333a",
    "blue": "#6fbfd9",
    "orange": "#f0a15e",
    "green": "#9acb7c",
    "red": "#ff8a80",
}
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"


def variables(colours: dict[str, str]) -> str:
    return " ".join(f"--{name}: {value};" for name, value in colours.items())


def stylesheet() -> str:
    """For the site: the page's scheme decides, not the system's."""
    return (
        "/* Written by scripts/write_documents.py: the colours of the pictures. */\n"
        f'[data-md-color-scheme="default"] svg.picture {{ {variables(LIGHT)} }}\n'
        f'[data-md-color-scheme="slate"] svg.picture {{ {variables(DARK)} }}\n'
    )


STYLE = (
    f"svg.picture {{ {variables(LIGHT)} }} "
    f"@media (prefers-color-scheme: dark) {{ svg.picture {{ {variables(DARK)} }} }} "
    f"svg.picture text {{ font-family: {FONT}; font-size: 13px; fill: var(--ink); }} "
    "svg.picture text.small { font-size: 11px; } svg.picture text.bold { font-weight: 600; }"
)


class Drawing:
    """Grows downwards; all numbers are in units of the picture, which is `width` wide."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self._parts: list[str] = []

    def rect(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        fill: str = "none",
        stroke: str = "",
        radius: float = 0,
    ) -> None:
        line = f' stroke="var(--{stroke})"' if stroke else ""
        size = f'width="{_n(width)}" height="{_n(height)}" rx="{_n(radius)}"'
        self._add(f'<rect x="{_n(x)}" y="{_n(y)}" {size} fill="{_paint(fill)}"{line}/>')

    def line(
        self,
        x1: float,
        y1: float,
        x2: float,
        y2: float,
        colour: str = "ink",
        width: float = 1.2,
        dash: str = "",
    ) -> None:
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        ends = f'x1="{_n(x1)}" y1="{_n(y1)}" x2="{_n(x2)}" y2="{_n(y2)}"'
        self._add(f'<line {ends} stroke="var(--{colour})" stroke-width="{_n(width)}"{dashed}/>')

    def path(self, points: list[tuple[float, float]], colour: str, width: float = 2, dash: str = "") -> None:
        places = " ".join(f"{_n(x)},{_n(y)}" for x, y in points)
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        self._add(
            f'<polyline points="{places}" fill="none" stroke="var(--{colour})" stroke-width="{_n(width)}" '
            f'stroke-linejoin="round"{dashed}/>'
        )

    def circle(self, x: float, y: float, radius: float, fill: str, stroke: str = "") -> None:
        line = f' stroke="var(--{stroke})" stroke-width="2"' if stroke else ""
        self._add(f'<circle cx="{_n(x)}" cy="{_n(y)}" r="{_n(radius)}" fill="{_paint(fill)}"{line}/>')

    def arrow(self, x1: float, x2: float, y: float, colour: str = "ink") -> None:
        """A level one, with its head at x2."""
        back = -7 if x2 > x1 else 7
        self.line(x1, y, x2 + back / 2, y, colour, 1.5)
        head = f"{_n(x2)},{_n(y)} {_n(x2 + back)},{_n(y - 4)} {_n(x2 + back)},{_n(y + 4)}"
        self._add(f'<polygon points="{head}" fill="var(--{colour})"/>')

    def text(
        self, x: float, y: float, words: str, colour: str = "ink", anchor: str = "start", style: str = ""
    ) -> None:
        """`style`: "small", "bold"; `y` is the line that letters stand on."""
        named = f' class="{style}"' if style else ""
        filled = "" if colour == "ink" else f' style="fill: var(--{colour})"'
        place = f'x="{_n(x)}" y="{_n(y)}" text-anchor="{anchor}"'
        self._add(f"<text {place}{named}{filled}>{escape(words, quote=False)}</text>")

    def svg(self) -> str:
        size = f'width="{self.width}" height="{self.height}"'
        box = f'viewBox="0 0 {self.width} {self.height}"'
        head = f'<svg xmlns="http://www.w3.org/2000/svg" class="picture" {box}'
        paper = f'<rect {size} rx="8" fill="var(--paper)"/>'
        lines = [f"{head} {size}>", f"<style>{STYLE}</style>", paper, *self._parts, "</svg>"]
        return "\n".join(lines) + "\n"

    def _add(self, part: str) -> None:
        self._parts.append(part)


def _paint(name: str) -> str:
    return name if name == "none" else f"var(--{name})"


def _n(value: float) -> str:
    """A number without digits that nobody sees."""
    return f"{value:.1f}".removesuffix(".0")
