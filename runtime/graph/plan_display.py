"""A described plan as a table, for notebooks: HTML, and Markdown."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any

_HEADS = ("chain", "operator", "", "columns", "goes to")


def as_html(plan: Mapping[str, Any]) -> str:
    """`plan`: see `plan.describe`."""
    heads = "".join(f"<th style='text-align:left'>{head}</th>" for head in _HEADS)
    lines = []
    for row in _rows(plan):
        cells = "".join(f"<td style='text-align:left'>{html.escape(cell)}</td>" for cell in row)
        lines.append(f"<tr>{cells}</tr>")
    title = f"job <b>{html.escape(plan['job'])}</b>, max_parallelism {plan['max_parallelism']}"
    return f"<div>{title}<table><tr>{heads}</tr>{''.join(lines)}</table></div>"


def as_markdown(plan: Mapping[str, Any]) -> str:
    """`plan`: see `plan.describe`."""
    rows = [_HEADS, ("---",) * len(_HEADS), *_rows(plan)]
    table = "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows)
    return f"job **{plan['job']}**, max_parallelism {plan['max_parallelism']}\n\n{table}\n"


def _rows(plan: Mapping[str, Any]) -> list[Sequence[str]]:
    exchanges = {exchange["exchange"]: exchange for exchange in plan["exchanges"]}
    return [
        (
            str(chain["chain"]),
            operator["uid"],
            "; ".join(filter(None, (operator["name"], operator.get("note"), operator.get("warning")))),
            ", ".join(
                f"{name} {kind.removesuffix(' not null')}"
                for name, kind in operator.get("columns", {}).items()
            ),
            ", ".join(_target(tag, target, exchanges) for tag, target in _targets(operator)),
        )
        for chain in plan["chains"]
        for operator in chain["operators"]
    ]


def _targets(operator: Mapping[str, Any]) -> list[tuple[str, Any]]:
    main = [("", target) for target in operator.get("to", ())]
    return main + [
        (tag, target) for tag, all_of in operator.get("side_outputs", {}).items() for target in all_of
    ]


def _target(tag: str, target: Any, exchanges: Mapping[int, Any]) -> str:
    of = f"{tag}: " if tag else ""
    if isinstance(target, str):
        return of + target
    exchange = exchanges[target["exchange"]]
    key = f" {', '.join(exchange['key'])}" if "key" in exchange else ""
    side = f"{exchange['input']}, " if "input" in exchange else ""
    return f"{of}{exchange['to']} ({side}{exchange['partitioning']}{key})"
