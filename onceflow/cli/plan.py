"""`onceflow plan JOB`: the job's graph, without running anything."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.tree import Tree

from onceflow.cli.load import load_job
from onceflow.runtime.graph.plan import describe

app = typer.Typer(
    help="Print a job's graph: operators, uids, chains, exchanges, parallelism.",
    add_completion=False,
    pretty_exceptions_enable=False,
)


_PIPE_WIDTH = 1_000
"""Where no terminal wraps the lines, each operator is one line."""


@app.command()
def plan(
    target: Annotated[
        str, typer.Argument(metavar="JOB", help="FILE.py, FILE.py:attribute or module:attribute.")
    ],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="-- ARGUMENTS", help="What follows -- goes to the job's build(argv)."),
    ] = None,
    parallelism: Annotated[int | None, typer.Option(help="Slots, as they would be given to run.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The plan as one JSON object.")] = False,
) -> None:
    """Exit code 0, or 2 if the program is wrong."""
    described = describe(load_job(target, arguments or []).job.build(), parallelism)
    if as_json:
        typer.echo(json.dumps(described, indent=2))
    else:
        console = Console(highlight=False)
        if not console.is_terminal:
            console.width = _PIPE_WIDTH
        console.print(_tree(described))


def _tree(plan: dict[str, Any]) -> Tree:
    slots = plan["parallelism"] or "as many as the master offers"
    tree = Tree(
        f"[bold]{escape(plan['job'])}[/bold]  parallelism {slots}, max_parallelism {plan['max_parallelism']}"
    )
    if plan["params"]:
        tree.add(
            f"parameters  [dim]{escape(', '.join(f'{n}: {v}' for n, v in plan['params'].items()))}[/dim]"
        )
    exchanges = {e["exchange"]: e for e in plan["exchanges"]}
    for chain in plan["chains"]:
        feeds = [e for e in plan["exchanges"] if e["to_chain"] == chain["chain"]]
        came = "; ".join(_exchange_text(e) + f" from chain {e['from_chain']}" for e in feeds)
        branch = tree.add(f"chain {chain['chain']}" + (f"  [dim]{escape(came)}[/dim]" if came else ""))
        operators = {o["uid"]: o for o in chain["operators"]}
        _add(branch, chain["operators"][0], operators, exchanges)
    return tree


def _add(
    branch: Tree, operator: dict[str, Any], operators: dict[str, Any], exchanges: dict[int, Any]
) -> None:
    typed = operator.get("columns", {}).items()
    columns = ", ".join(f"{name} {kind.removesuffix(' not null')}" for name, kind in typed)
    uid, name = escape(operator["uid"]), escape(operator["name"])
    leaf = branch.add(f"[cyan]{uid}[/cyan]  {name}" + (f"  [dim]{escape(columns)}[/dim]" if columns else ""))
    if "out_of_orderness_ms" in operator:
        leaf.add(f"[dim]{escape(_event_time(operator))}[/dim]")
    if "rate_limit_per_s" in operator:
        leaf.add(f"[dim]at most {operator['rate_limit_per_s']:g} records a second, of the whole job[/dim]")
    if "note" in operator:
        leaf.add(f"[dim]{escape(operator['note'])}[/dim]")
    if "warning" in operator:
        leaf.add(f"[yellow]warning: {escape(operator['warning'])}[/yellow]")
    targets = [("", t) for t in operator.get("to", [])]
    targets += [(tag, t) for tag, ts in operator.get("side_outputs", {}).items() for t in ts]
    for tag, target in targets:
        below = leaf.add(f"side output {escape(tag)}") if tag else leaf
        if isinstance(target, str):
            _add(below, operators[target], operators, exchanges)
        else:
            exchange = exchanges[target["exchange"]]
            below.add(f"→ {_exchange_text(exchange)} to chain {exchange['to_chain']}")


def _event_time(operator: dict[str, Any]) -> str:
    idle = operator["idle_after_ms"]
    bound = f"out of order by {operator['out_of_orderness_ms']} ms"
    if "watermark_column" in operator:
        bound = f"watermarks from column {operator['watermark_column']}"
    elif "watermark_generator" in operator:
        bound = f"watermarks by {operator['watermark_generator']}"
    said = [f"event time {operator['event_time']}", bound]
    said.append("never idle" if idle is None else f"idle after {idle} ms")
    if "alignment_group" in operator:
        ahead = f"splits at most {operator['max_drift_ms']} ms ahead"
        said.append(f"{ahead} of the slowest in group {operator['alignment_group']}")
    return ", ".join(said)


def _exchange_text(exchange: dict[str, Any]) -> str:
    key = f" {', '.join(exchange['key'])}" if "key" in exchange else ""
    side = f"{exchange['input']}, " if "input" in exchange else ""
    return f"{side}{exchange['partitioning']}{key}"
