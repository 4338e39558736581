"""The grammar: Flink's SQL for queries, as a small dialect of sqlglot.

Functions stay calls by name, so that what a name means is decided by us alone and not by sqlglot's
translations. Every node knows a place in the text.
"""

from __future__ import annotations

from typing import Any, ClassVar

from sqlglot import exp, generator, tokens
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ErrorLevel, ParseError, TokenError
from sqlglot.parser import Parser
from sqlglot.tokens import TokenType

from onceflow.runtime.errors import GraphError

_PARSED_SPECIALLY = ("CAST", "TRY_CAST", "EXTRACT", "TRIM", "SUBSTRING", "POSITION")


class TableArgument(exp.Expression):
    """`TABLE visits [PARTITION BY user, ...]`, or a query, as an argument of a table function."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "expressions": False}


class _Parser(Parser):
    FUNCTIONS: ClassVar[dict[str, Any]] = {}
    FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
        **{name: Parser.FUNCTION_PARSERS[name] for name in _PARSED_SPECIALLY},
        "FLOOR": lambda self: self._rounded("FLOOR"),
        "CEIL": lambda self: self._rounded("CEIL"),
        "CEILING": lambda self: self._rounded("CEIL"),
    }
    NO_PAREN_FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {"CASE": Parser.NO_PAREN_FUNCTION_PARSERS["CASE"]}
    FUNC_TOKENS: ClassVar[set[Any]] = {*Parser.FUNC_TOKENS, TokenType.SESSION, TokenType.TABLE}

    def expression(self, instance: Any, token: Any = None, comments: Any = None) -> Any:
        """Every node gets a place: where its text ends, if nothing else says it."""
        made = super().expression(instance, token, comments)
        if "start" not in made.meta and self._prev:
            made.update_positions(self._prev)
        return made

    def _negate_range(self, this: Any = None) -> Any:
        """NOT LIKE is NOT of LIKE, as for BETWEEN and IN; sqlglot would make it a flag of LIKE."""
        return this and self.expression(exp.Not(this=this))

    def _parse_lambda(self, alias: bool = False) -> Any:
        """One argument of a function; here it may be a table too."""
        if self._curr and self._curr.token_type == TokenType.TABLE and not self._is_call():
            self._advance()
            return self._table_argument()
        if self._next and self._next.token_type == TokenType.FARROW:
            name = self._parse_id_var(any_token=True)
            self._advance()
            return self.expression(exp.Kwarg(this=name, expression=self._parse_lambda()))
        return super()._parse_lambda(alias=alias)

    def _is_call(self) -> bool:
        return bool(self._next and self._next.token_type == TokenType.L_PAREN)

    def _table_argument(self) -> Any:
        this, keys = self._parse_table_parts(), None
        if self._match(TokenType.PARTITION_BY):
            keys = self._partition_keys()
        return self.expression(TableArgument(this=this, expressions=keys))

    def _partition_keys(self) -> list[Any]:
        """Columns, in parentheses or not. Behind the last comma may come the next argument already."""
        if self._match(TokenType.L_PAREN):
            keys = self._parse_csv(self._parse_column)
            self._match_r_paren()
            return list(keys)
        keys = [self._parse_column()]
        while self._curr and self._curr.token_type == TokenType.COMMA:
            here = self._index
            self._advance()
            named = self._next and self._next.token_type in (TokenType.L_PAREN, TokenType.FARROW)
            if named:
                self._retreat(here)
                break
            keys.append(self._parse_column())
        return keys

    def _rounded(self, name: str) -> Any:
        """FLOOR(x) of a number, and FLOOR(ts TO HOUR) of a time."""
        arguments = [self._parse_disjunction()]
        if self._match_text_seq("TO"):
            arguments.append(self._parse_var(any_token=True, upper=True))
        return self.expression(exp.Anonymous(this=name, expressions=arguments))


class StreamingSql(Dialect):
    """Names in backticks or double quotes, texts in single ones; names keep their case."""

    class Tokenizer(tokens.Tokenizer):
        IDENTIFIERS: ClassVar[list[str]] = ["`", '"']
        QUOTES: ClassVar[list[str]] = ["'"]

    class Generator(generator.Generator):
        TRANSFORMS: ClassVar[dict[Any, Any]] = {
            **generator.Generator.TRANSFORMS,
            TableArgument: lambda self, node: f"TABLE {self.sql(node, 'this')}",
        }

    Parser = _Parser


def parsed(text: str) -> exp.Expr:
    """The one statement of the text. Raises GraphError with line and column if it is none."""
    dialect = StreamingSql()
    try:
        trees = dialect.parser(error_level=ErrorLevel.IMMEDIATE).parse(dialect.tokenize(text), text)
    except ParseError as error:
        raise GraphError(_not_understood(error)) from error
    except TokenError as error:
        raise GraphError(
            f"SQL: the text can't be read: {error}: look for a quote that is not closed"
        ) from error
    statements = [tree for tree in trees if tree is not None]
    if len(statements) != 1:
        raise GraphError(f"SQL: {len(statements)} statements were given: give job.sql(...) one query")
    return statements[0]


def _not_understood(error: ParseError) -> str:
    first = error.errors[0] if error.errors else {}
    said = str(first.get("description") or "it is no query").rstrip(".")
    word = str(first.get("highlight") or "")
    near = f" at {word!r}" if word else ""
    why = "something is missing behind it" if "<class" in said else said[:1].lower() + said[1:]
    line, column = int(first.get("line") or 1), int(first.get("col") or 1) - max(len(word) - 1, 0)
    return (
        f"SQL, line {line}, column {column}: the query is not understood{near} ({why}): "
        "see docs/sql.md for what there is"
    )
