"""FormatKit: a test for each sentence of the contract of formats."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa

from onceflow.connectors.formats.format import Format
from onceflow.runtime.contracts import Json
from onceflow.testing.kit.format_checks import FORMAT_CHECKS, SCENARIOS, PlayedFormat
from onceflow.testing.kit.kit import Kit, add_tests


class FormatKit(Kit):
    """Tests of a format:

        class TestPairs(FormatKit):
            def format(self):
                return Pairs(("name", "count"))

            def rows(self):
                return pa.RecordBatch.from_pylist([{"name": "a", "count": 1}, ...])

            def bad(self):
                return [b"no pair"]

    What can't be read needs `bad`; without it those tests are skipped.
    """

    def format(self) -> Format:
        """The format, which reads and writes. Called in every process."""
        raise NotImplementedError(f"{type(self).__qualname__}.format() has to give the format under test")

    def rows(self) -> pa.RecordBatch:
        """Three rows or more that are read back as they were written."""
        raise NotImplementedError(f"{type(self).__qualname__}.rows() has to give rows of the format")

    def bad(self) -> Sequence[bytes]:
        """Values that are no rows of the format. None: what needs them is skipped."""
        return ()

    def played(self) -> PlayedFormat:
        """The format for the checks."""
        elsewhere = self.elsewhere if self.in_new_processes else None
        return PlayedFormat(self.format(), self.rows(), self.bad(), elsewhere)

    def do_in_new_process(self, scenario: str, arguments: Mapping[str, Json]) -> Json:
        return SCENARIOS[scenario](self.played(), arguments)


def _run(kit: FormatKit, check: Callable[..., None]) -> None:
    __tracebackhide__ = True
    kit.run_check(check, lambda kit: kit.played())


add_tests(FormatKit, FORMAT_CHECKS, _run)
