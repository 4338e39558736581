"""How far apart the event times of two tables may be, as a condition of a join says it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sqlglot import exp

from onceflow.runtime.sql.literals import interval_ms

_FLIPPED: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.LT: exp.GT,
    exp.LTE: exp.GTE,
    exp.GT: exp.LT,
    exp.GTE: exp.LTE,
    exp.EQ: exp.EQ,
}


@dataclass(frozen=True)
class Times:
    """The event times of both sides, by their names in the joined rows."""

    left: str
    right: str
    in_ms: bool
    """Whether they are integers in ms, to which a number may be added in place of an INTERVAL."""


@dataclass
class Bounds:
    """The least and the largest right time less its left one, in ms; None: there is no bound."""

    lower: int | None = None
    upper: int | None = None

    def narrow(self, least: int | None, most: int | None) -> None:
        """The difference has to be within these, too."""
        if least is not None:
            self.lower = least if self.lower is None else max(self.lower, least)
        if most is not None:
            self.upper = most if self.upper is None else min(self.upper, most)


def bounds_in(node: exp.Expr, times: Times) -> Bounds | None:
    """What a comparison says of both event times, and of nothing else. None: it says something else.

    The ends of an open interval are a millisecond nearer: finer times are compared once more, as they are.
    """
    made = Bounds()
    for compared in _comparisons(node):
        said = _difference(compared, times)
        if said is None:
            return None
        kind, ms = said
        if kind in (exp.GT, exp.GTE, exp.EQ):
            made.narrow(_nearer(ms, int(kind is exp.GT)), None)
        if kind in (exp.LT, exp.LTE, exp.EQ):
            made.narrow(None, _nearer(ms, -int(kind is exp.LT)))
    return made


def _nearer(ms: int, by: int) -> int:
    """The last time that is within an end."""
    return ms + by


def _comparisons(node: exp.Expr) -> Iterator[exp.Expr]:
    """BETWEEN as the two comparisons that it is."""
    if isinstance(node, exp.Between) and not node.args.get("symmetric"):
        yield exp.GTE(this=node.this, expression=node.args["low"])
        yield exp.LTE(this=node.this, expression=node.args["high"])
    else:
        yield node


def _difference(node: exp.Expr, times: Times) -> tuple[type[exp.Expr], int] | None:
    """The kind of comparison of the right time less the left one, and with what, in ms."""
    if type(node) not in _FLIPPED:
        return None
    left, right = _sum(node.this, times), _sum(node.expression, times)
    if left is None or right is None:
        return None
    of_left, of_right, ms = (a - b for a, b in zip(left, right, strict=True))
    if (of_left, of_right) == (-1, 1):
        return type(node), -ms
    if (of_left, of_right) == (1, -1):
        return _FLIPPED[type(node)], ms
    return None


def _sum(node: exp.Expr, times: Times) -> tuple[int, int, int] | None:
    """How often each of the times is in a sum, and what is added in ms. None: there is something else."""
    node = node.unnest()
    if isinstance(node, exp.Column) and len(node.parts) == 1:
        if node.name == times.left:
            return 1, 0, 0
        return (0, 1, 0) if node.name == times.right else None
    if isinstance(node, exp.Interval):
        return 0, 0, interval_ms(node)
    if isinstance(node, exp.Literal) and times.in_ms and str(node.this).isdigit() and not node.is_string:
        return 0, 0, int(str(node.this))
    if not isinstance(node, exp.Add | exp.Sub):
        return None
    left, right = _sum(node.this, times), _sum(node.expression, times)
    if left is None or right is None:
        return None
    sign = 1 if isinstance(node, exp.Add) else -1
    return left[0] + sign * right[0], left[1] + sign * right[1], left[2] + sign * right[2]
