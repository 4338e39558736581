"""Which tables are refused: those to which files can't be added as they are, and those whose log others
replace."""

from __future__ import annotations

from deltalake import DeltaTable

from onceflow.connectors.delta.settings import DeltaSettings
from onceflow.runtime.errors import Fatal

_KNOWN_FEATURES = frozenset(
    {
        "appendOnly", "changeDataFeed", "checkConstraints", "columnMapping", "deletionVectors",
        "domainMetadata", "generatedColumns", "identityColumns", "invariants", "timestampNtz", "v2Checkpoint",
        "vacuumProtocolCheck", "variantType", "variantType-preview",
    }
)  # fmt: skip
"""Features under which a file may be added as it is, or whose use is looked for below."""
_COMPUTED = {
    "delta.generationExpression": "computed from others",
    "delta.identity.start": "an identity column",
    "delta.invariants": "checked by an expression",
}
_COMMITS_LOOKED_AT = 20


def refuse_table(table: DeltaTable, settings: DeltaSettings, where: str) -> None:
    """Raises Fatal. Reads the log a second time only where Spark could write it too."""
    properties = table.metadata().configuration
    protocol = table.protocol()
    if unknown := sorted(set(protocol.writer_features or ()) - _KNOWN_FEATURES):
        raise Fatal(
            f"{where}: the table has the feature {unknown[0]!r}, which this sink does not write: drop the "
            "feature, or write to another table"
        )
    if properties.get("delta.columnMapping.mode", "none") != "none":
        raise Fatal(
            f"{where}: the table maps its columns to other names (delta.columnMapping.mode), which this "
            "sink does not write: use a table without it"
        )
    for name in properties:
        if name.startswith("delta.constraints."):
            raise Fatal(
                f"{where}: the table has the constraint {name.removeprefix('delta.constraints.')!r}, which "
                "this sink does not check: drop it, or write to another table"
            )
    if settings.key and properties.get("delta.appendOnly", "false") == "true":
        raise Fatal(
            f"{where}: the table only takes appends (delta.appendOnly), and key= updates rows: leave key= "
            "out, or clear the property"
        )
    for field in table.schema().fields:
        for name, what in _COMPUTED.items():
            if name in field.metadata:
                raise Fatal(
                    f"{where}: column {field.name!r} of the table is {what} ({name}), which this sink does "
                    "not do: write to another table"
                )
    _refuse_spark_on_s3(table, settings, where)


def _refuse_spark_on_s3(table: DeltaTable, settings: DeltaSettings, where: str) -> None:
    if not settings.is_on_s3 or settings.only_writer:
        return
    for commit in table.history(_COMMITS_LOOKED_AT):
        if str(commit.get("engineInfo", "")).startswith("Apache-Spark"):
            raise Fatal(
                f"{where}: Spark has committed to this table, and on S3 Spark replaces entries of the log "
                "that others have written: rows would be lost. Let only one of them write; if Spark only "
                "reads it from now on, say only_writer=True"
            )
