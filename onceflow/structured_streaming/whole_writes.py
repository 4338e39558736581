"""df.write: one transaction for all rows. There is no batch that Spark would run again by itself.

With a uid a write is a thing of its own: it is written once, and asking for it again, for instance by a
scheduler after a crash whose outcome nobody knows, is refused if it is there.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Sequence

from onceflow.connectors.kafka.client import KafkaClient, LedgerEntry, LedgerKey
from onceflow.connectors.kafka.transactions.ahead import Output
from onceflow.connectors.kafka.transactions.owner import Claimant, OwnerTransactions
from onceflow.connectors.waiting import Patience
from onceflow.runtime.errors import UsageError
from onceflow.structured_streaming.micro_batches import TiedClient, ledger_after, owner_of
from onceflow.structured_streaming.staging import Folder

_WRITE = "write-"
_ABANDONED_MS = 7 * 24 * 3600 * 1000


def commit_write(
    client: KafkaClient, ledger: LedgerKey, write_id: str, outputs: Sequence[Output], patience: Patience
) -> None:
    """Make all rows visible at once; when it raises, ask the ledger (or write again with the same uid)."""
    tied = TiedClient(client, lambda entry: check_unwritten(entry, ledger, write_id))
    transactions = OwnerTransactions(tied, ledger, Claimant(write_id, 0), patience, None)
    try:
        transactions.commit(ledger_after(0), outputs)
    finally:
        transactions.close()


def check_unwritten(entry: LedgerEntry, ledger: LedgerKey, write_id: str) -> None:
    """Raises UsageError if another write has used this uid."""
    if entry.checkpoint_id > 0 and owner_of(entry) != write_id:
        raise UsageError(
            f"{ledger.transactional_id} is written already, by {owner_of(entry)}: a uid names one write, "
            "which happens once. Nothing was written. To write more rows give another uid, or none"
        )


def default_staging() -> Folder:
    """The staging folder for a Spark on one machine; tasks elsewhere find no sign there and say so."""
    return Folder.at(os.path.join(tempfile.gettempdir(), "onceflow-staging"))


def write_folder(write_id: str) -> str:
    """The name of a write's folder, with the time it was made."""
    return f"{_WRITE}{time.time_ns() // 1_000_000}-{write_id}"


def sweep_abandoned(root: Folder) -> None:
    """Folders of writes that began a week ago: their driver was killed."""
    for name in root.names():
        began = name.removeprefix(_WRITE).split("-")[0]
        if name.startswith(_WRITE) and began.isdigit() and time.time() * 1000 - int(began) > _ABANDONED_MS:
            root.delete(name)
