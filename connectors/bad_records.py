"""Bad records: what becomes of one that can't be decoded, by the same two options of every source."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, get_args

from onceflow.runtime.errors import BadRecordError, OptionError
from onceflow.runtime.nearest import nearest

if TYPE_CHECKING:
    from onceflow.runtime.contracts import Sink

Tolerance = Literal["none", "all"]
ADVICE = 'To go on without such records, give errors_tolerance="all" and dead_letters= to the source'
"""What ends the sentence of a record that ends the job."""

_SHOWN_BYTES = 100


class TolerantSource:
    """The part of a source's declaration that says what becomes of a record that can't be decoded: it ends
    the job, or it goes to a sink of its own, once. A DeadLetterSource.

    A subclass is a frozen dataclass with these two fields, which calls `settle_tolerance` when it is made.
    """

    errors_tolerance: Tolerance
    """"none": a record that can't be decoded ends the job. "all": it goes to dead_letters."""
    dead_letters: Sink | None
    """Any sink for records that can't be decoded; errors_tolerance is then "all"."""

    def settle_tolerance(self, other_place: Any = None) -> None:
        """Bring the two in line. `other_place`: where such records go if they go to no sink. Raises
        OptionError for a tolerance that is not known, and for one that has no place for the records."""
        if self.dead_letters is not None:
            object.__setattr__(self, "errors_tolerance", "all")
        known = get_args(Tolerance)
        if self.errors_tolerance not in known:
            given = str(self.errors_tolerance)
            raise OptionError(
                f'errors_tolerance={self.errors_tolerance!r}{nearest(given, known)}: write "none" or "all"'
            )
        if self.tolerates_bad and self.dead_letters is None and not other_place:
            raise OptionError(
                'errors_tolerance="all" needs a place for the records that can\'t be decoded, since none is '
                "dropped without a trace: give dead_letters=, any sink"
            )

    @property
    def tolerates_bad(self) -> bool:
        """Whether a record that can't be decoded is a dead letter, and not the end of the job."""
        return self.errors_tolerance == "all"

    def dead_letter_sink(self) -> Sink | None:
        """See DeadLetterSource."""
        return self.dead_letters


def bad_record_error(what: str, reason: str, value: bytes | None = None) -> BadRecordError:
    """The error for the first bad record of a source that tolerates none. `what`: which record it is, and
    where; `value`: what could not be decoded, if it is worth showing."""
    return BadRecordError(f"{what} can't be decoded: {reason}{shown_value(value)}. {ADVICE}")


def shown_value(value: bytes | None) -> str:
    """The part of a sentence that shows what could not be decoded."""
    return "" if value is None else f"; it begins with {value[:_SHOWN_BYTES]!r}"
