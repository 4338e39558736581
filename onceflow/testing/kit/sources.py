"""SourceKit and QueueKit: a test for each sentence of the contract of sources."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from unittest import SkipTest

from onceflow.runtime.contracts import Json, PausableReader, PausableSource, PruningSource, Source
from onceflow.runtime.testing.conformance.acknowledging import ACKNOWLEDGING_CHECKS, QueueUnderTest
from onceflow.runtime.testing.conformance.moved_splits import (
    MOVED_SPLITS_CHECKS,
    READING_SCENARIOS,
    PlayedSource,
)
from onceflow.runtime.testing.conformance.pausing import PAUSING_CHECKS
from onceflow.runtime.testing.conformance.pruning import PRUNING_CHECKS
from onceflow.runtime.testing.conformance.sources import SOURCE_CHECKS, open_reader
from onceflow.testing.kit.kit import Kit, add_tests


class SourceKit(Kit):
    """Tests of a source:

        class TestLines(SourceKit):
            def prepare(self):
                Path(self.folder, "a.txt").write_text("one\\ntwo\\n")

            def source(self):
                return Lines(self.folder)

    What a source may do beyond reading is found by what it has: PruningSource, PausableReader,
    ProjectableSource. For a queue there is QueueKit.
    """

    def source(self) -> Source:
        """The source: bounded, with rows, in two splits or more if it can have them. Called in every
        process."""
        raise NotImplementedError(f"{type(self).__qualname__}.source() has to give the source under test")

    def played(self) -> PlayedSource:
        """The source for checks that look at it from other readers and processes."""
        return PlayedSource(self.source(), self.elsewhere if self.in_new_processes else None)

    def do_in_new_process(self, scenario: str, arguments: Mapping[str, Json]) -> Json:
        return READING_SCENARIOS[scenario](self.source(), arguments)

    def pruning(self) -> Source:
        """The source, for checks of what prunes."""
        source = self.source()
        if not isinstance(source, PruningSource):
            raise SkipTest("the source is no PruningSource")
        return source

    def pausing(self) -> Source:
        """The source, for checks of readers that pause."""
        source = self.source()
        reader = open_reader(source)
        reader.close()
        says = isinstance(source, PausableSource) and source.can_pause
        if not (says or isinstance(reader, PausableReader)):
            raise SkipTest("its readers are no PausableReaders")
        return source


class QueueKit(SourceKit):
    """Tests of a source whose readers acknowledge (AcknowledgingReader): `prepare` puts three messages or
    more into a fresh queue."""

    def waiting(self) -> int:
        """How many messages the queue would still deliver to somebody who has read nothing."""
        raise NotImplementedError(
            f"{type(self).__qualname__}.waiting() has to count what was not acknowledged"
        )

    def queue(self) -> QueueUnderTest:
        """The source and its queue."""
        return QueueUnderTest(self.source(), self.waiting)


def _run_source(kit: SourceKit, check: Callable[..., None]) -> None:
    __tracebackhide__ = True
    kit.run_check(check, lambda kit: kit.source())


def _run_played(kit: SourceKit, check: Callable[..., None]) -> None:
    __tracebackhide__ = True
    kit.run_check(check, lambda kit: kit.played())


def _run_pruning(kit: SourceKit, check: Callable[..., None]) -> None:
    __tracebackhide__ = True
    kit.run_check(check, lambda kit: kit.pruning())


def _run_pausing(kit: SourceKit, check: Callable[..., None]) -> None:
    __tracebackhide__ = True
    kit.run_check(check, lambda kit: kit.pausing())


def _run_queue(kit: QueueKit, check: Callable[..., None]) -> None:
    __tracebackhide__ = True
    kit.run_check(check, lambda kit: kit.queue())


add_tests(SourceKit, SOURCE_CHECKS, _run_source)
add_tests(SourceKit, MOVED_SPLITS_CHECKS, _run_played)
add_tests(SourceKit, PRUNING_CHECKS, _run_pruning)
add_tests(SourceKit, PAUSING_CHECKS, _run_pausing)
add_tests(QueueKit, ACKNOWLEDGING_CHECKS, _run_queue)
