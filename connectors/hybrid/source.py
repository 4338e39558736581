"""HybridSource: history first, then what happens now, as one stream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from onceflow.connectors.hybrid.enumerator import HybridEnumerator
from onceflow.connectors.hybrid.reader import HybridReader
from onceflow.connectors.hybrid.stages import Finished, inner, number_of, then_of
from onceflow.runtime.clock import Clock
from onceflow.runtime.contracts import (
    ChangelogSource,
    DeadLetterSource,
    Json,
    PartialChangelogSource,
    PausableSource,
    ProjectableSource,
    PruningSource,
    ReaderContext,
    Sink,
    Source,
    SourceReader,
    SplitState,
)
from onceflow.runtime.errors import OptionError
from onceflow.runtime.explained_calls import explained
from onceflow.runtime.nearest import nearest


@explained
@dataclass(frozen=True)
class HybridSource:
    """Reads each of the `sources` to its end, then the next; the last one has no end. A Source; all of them
    have the same columns.

    Where each source begins is found out at the very first start of the job, and is part of every checkpoint:
    with `start="latest"` for Kafka, say, the records that come while history is read are read after it, each
    once. If some of them are deleted before their time comes, the job says so and ends, as for any lost
    records: the topic has to keep them for longer than history takes.

    There may be some seconds between a source's last row and its successor's first: a checkpoint has to say
    that all of it was read. Event time goes on from where it has come to; rows before that are late.
    """

    sources: Sequence[Source]
    columns: frozenset[str] | None = field(default=None, repr=False)
    """Set by project(): the columns that the job reads."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "sources", tuple(self.sources))
        if self.columns is None:
            _check(self.sources)

    # --- Source ---

    @property
    def schema(self) -> pa.Schema:
        """The columns of the last source; one may be null if it may be in any of them."""
        columns = [
            each for each in self.sources[-1].schema if self.columns is None or each.name in self.columns
        ]
        return pa.schema(
            [
                each.with_nullable(any(source.schema.field(each.name).nullable for source in self.sources))
                for each in columns
            ]
        )

    @property
    def record_type(self) -> type | None:
        return self.sources[-1].record_type

    @property
    def is_bounded(self) -> bool:
        return False

    def open_enumerator(self, job: str, clock: Clock) -> HybridEnumerator:
        return HybridEnumerator([source.open_enumerator(job, clock) for source in self.sources], clock)

    def open_reader(self, context: ReaderContext) -> HybridReader:
        return HybridReader(self._open_reader, self.schema, context)

    def _open_reader(self, number: int, context: ReaderContext) -> SourceReader:
        return self.sources[number].open_reader(context)

    # --- What it may do beyond that ---

    def project(self, columns: frozenset[str]) -> HybridSource:
        """See ProjectableSource."""
        narrowed = [
            source.project(columns) if isinstance(source, ProjectableSource) else source
            for source in self.sources
        ]
        return replace(self, sources=narrowed, columns=columns)

    def add_finished(self, finished: Json, splits: Sequence[SplitState]) -> Json:
        """See PruningSource."""
        done = Finished.of(finished)
        number = max([done.number, *(number_of(split.split_id) for split in splits)])
        if number > done.number:
            done = Finished(number)
        now = [split for split in splits if number_of(split.split_id) == number]
        source, of_source = self.sources[number], done.of_source
        if isinstance(source, PruningSource):
            of_source = source.add_finished(of_source, [inner(split) for split in now])
        then = next((then_of(split) for split in now if then_of(split) is not None), done.then)
        return Finished(number, of_source, then).to_json()

    @property
    def has_kinds(self) -> bool:
        """See ChangelogSource."""
        return any(isinstance(source, ChangelogSource) and source.has_kinds for source in self.sources)

    @property
    def lacks_before(self) -> bool:
        """See PartialChangelogSource."""
        return any(isinstance(each, PartialChangelogSource) and each.lacks_before for each in self.sources)

    @property
    def can_pause(self) -> bool:
        """See PausableSource."""
        return all(isinstance(source, PausableSource) and source.can_pause for source in self.sources)

    def ended(self, until: Json) -> Source:
        """See EndableSource: it can't be."""
        raise OptionError(
            "a HybridSource has no end, since its last source begins only when the others have been read: "
            "give the job the last source alone, or stop it when it has read enough"
        )

    def dead_letter_sink(self) -> Sink | None:
        """See DeadLetterSource."""
        return next(iter(_dead_letter_sinks(self.sources)), None)


def _dead_letter_sinks(sources: Sequence[Source]) -> list[Sink]:
    sinks = [source.dead_letter_sink() for source in sources if isinstance(source, DeadLetterSource)]
    return [sink for sink in sinks if sink is not None]


def _check(sources: Sequence[Source]) -> None:
    if len(sources) < 2:
        raise OptionError("HybridSource needs two sources or more: HybridSource([history, live])")
    for number, source in enumerate(sources, 1):
        is_last = number == len(sources)
        if source.is_bounded == is_last:
            raise OptionError(
                f"HybridSource: source {number} {'has an end' if is_last else 'has no end'}, and "
                + (
                    "the last one must not have one: leave out what bounds it"
                    if is_last
                    else 'is not the last: bound it (until="latest", no watch=), or put it last'
                )
            )
    first = sources[-1].schema
    for number, source in enumerate(sources[:-1], 1):
        _check_columns(number, source.schema, first)
    if len({repr(sink) for sink in _dead_letter_sinks(sources)}) > 1:
        raise OptionError("HybridSource: its sources have several dead-letter topics: give them one")


def _check_columns(number: int, schema: pa.Schema, last: pa.Schema) -> None:
    for name in sorted({*schema.names} ^ {*last.names}):
        where, others = ("the last one", schema) if name in schema.names else (f"source {number}", last)
        known = last if others is schema else schema
        raise OptionError(
            f"HybridSource: column {name!r} is not in {where}{nearest(name, known.names)}: all sources need "
            "the same columns"
        )
    for field_of in schema:
        wanted = last.field(field_of.name).type
        if field_of.type != wanted:
            raise OptionError(
                f"HybridSource: column {field_of.name!r} is {field_of.type} in source {number} and {wanted} "
                "in the last one: declare both with the same type"
            )
