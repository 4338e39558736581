"""Whether what a source has to go on with is still in Kafka's log, and the sentence for records that are not.

A log loses its end when a broker's disk does, or when a replica that lagged behind becomes leader (an unclean
election). New records then take the offsets of the lost ones, so that offsets alone say nothing: only the
leader's epoch, which every batch carries and which rises with each election, tells the one from the other
(KIP-101, KIP-320). Pure.
"""

from __future__ import annotations

import re

from onceflow.runtime.errors import DataLossError

_CUT_AT = re.compile(r"broker end offset is (\d+)")
_START_ANEW = "start the job anew, without the checkpoint"
_CAUSES = "a broker's disk lost them, or a replica without them became leader"


def check_range(split_id: str, next_offset: int, low: int, high: int) -> None:
    """Raises DataLossError if the record at next_offset is not there any more, or never was."""
    if next_offset < low:
        raise DataLossError(
            f"{split_id} has to go on at offset {next_offset}, but the broker has only {low} "
            f"to {high}: {low - next_offset} offsets have been deleted (retention, or delete-records)"
        )
    if next_offset > high:
        raise _lost_end(split_id, next_offset, f"the broker's log ends at {high}", high)


def cut_log(split_id: str, next_offset: int, cut_at: int | None) -> DataLossError:
    """The error for a log that has lost records which were read, and may have grown over their offsets since.
    `cut_at`: the first lost offset; None: it is not known."""
    if cut_at is None:
        return _lost_end(split_id, next_offset, "the broker's log has been cut before it", None)
    return _lost_end(split_id, next_offset, f"the broker's log was cut at {cut_at}", cut_at)


def cut_offset(said: str) -> int | None:
    """Where a log was cut, out of librdkafka's text; None: it does not say."""
    found = _CUT_AT.search(said)
    return int(found[1]) if found else None


def _lost_end(split_id: str, next_offset: int, what: str, cut_at: int | None) -> DataLossError:
    lost = "records" if cut_at is None else f"the records at offsets {cut_at} to {next_offset - 1}"
    return DataLossError(
        f"{split_id} has to go on at offset {next_offset}, but {what}: {lost} that were read are gone from "
        f"it ({_CAUSES}), and their offsets are those of other records: {_START_ANEW}"
    )
