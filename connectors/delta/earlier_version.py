"""Which version of a Delta table an older checkpoint has left, when a job goes back to it."""

from __future__ import annotations

from deltalake import DeltaTable

from onceflow.connectors.delta.settings import DeltaSettings
from onceflow.runtime.errors import Fatal

_CHANGE_NO_ROWS = frozenset({"OPTIMIZE", "VACUUM START", "VACUUM END"})
_ADDS_COLUMNS = "ADD COLUMN"
"""What the sink itself does, if it may; then its columns go with the rows that have them."""


def version_at(
    settings: DeltaSettings, table: DeltaTable, ledger: str, to: int, past: int, where: str
) -> int:
    """The latest version whose `ledger` says checkpoint `to` or less; all behind it are this sink's own.

    Raises Fatal if somebody else has written since then, or entries of the log are gone: `past` is the
    checkpoint that the job can go on from instead.
    """
    operations = {int(each["version"]): str(each["operation"]) for each in table.history()}
    harmless = _CHANGE_NO_ROWS | {_ADDS_COLUMNS} if settings.may_add_columns else _CHANGE_NO_ROWS
    version, said = table.version(), table.transaction_version(ledger)
    while said is not None and said > to:
        if version - 1 not in operations:
            raise Fatal(
                f"{where}: its log begins with version {version}, and checkpoint {to} has left an older one: "
                f"it can't be restored; start the job with --from {past}"
            )
        before = _at(settings, version - 1).transaction_version(ledger)
        if before == said and operations[version] not in harmless:
            raise Fatal(
                f"{where}: version {version} ({operations[version]}) is somebody else's, and is younger than "
                f"checkpoint {to}: going back would take it away; start the job with --from {past}"
            )
        version, said = version - 1, before
    return version


def _at(settings: DeltaSettings, version: int) -> DeltaTable:
    return DeltaTable(settings.url, version=version, storage_options=dict(settings.storage_options))
