"""Tables that Spark writes to, too: refused on S3, and only there."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from onceflow.connectors.delta.refusals import refuse_table
from onceflow.connectors.delta.settings import DeltaSettings
from onceflow.runtime.errors import Fatal

ON_S3 = DeltaSettings("s3://bucket/t", {}, (), (), False, False, False, None, None)


def test_a_table_on_s3_that_spark_has_written_to_is_refused(tmp_path: Path) -> None:
    url = str(tmp_path / "t")
    write_deltalake(url, pa.table({"n": [1]}))
    refuse_table(DeltaTable(url), ON_S3, "sink 'out'")
    by_spark = {"commitInfo": {"timestamp": 1, "engineInfo": "Apache-Spark/4.1.0 Delta-Lake/4.1.0"}}
    Path(url, "_delta_log", f"{1:020d}.json").write_text(json.dumps(by_spark))
    with pytest.raises(Fatal, match=r"on S3 Spark replaces entries of the log.*only_writer=True"):
        refuse_table(DeltaTable(url), ON_S3, "sink 'out'")
    refuse_table(DeltaTable(url), replace(ON_S3, only_writer=True), "sink 'out'")
    refuse_table(DeltaTable(url), replace(ON_S3, url=url), "sink 'out'")


def test_features_that_ask_for_more_than_a_file_are_refused(tmp_path: Path) -> None:
    url = str(tmp_path / "t")
    write_deltalake(url, pa.table({"n": [1]}))
    features = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": []}
    protocol = {"protocol": {**features, "writerFeatures": ["rowTracking", "domainMetadata"]}}
    Path(url, "_delta_log", f"{1:020d}.json").write_text(json.dumps(protocol))
    with pytest.raises(Fatal, match="the feature 'rowTracking', which this sink does not write"):
        refuse_table(DeltaTable(url), ON_S3, "sink 'out'")
    mapped = {
        "id": "x",
        "format": {"provider": "parquet", "options": {}},
        "partitionColumns": [],
        "createdTime": 1,
    }
    names = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "n"}
    fields = [{"name": "n", "type": "long", "nullable": True, "metadata": names}]
    schema = {"type": "struct", "fields": fields}
    mapped |= {"schemaString": json.dumps(schema), "configuration": {"delta.columnMapping.mode": "name"}}
    protocol = {"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}}
    Path(url, "_delta_log", f"{1:020d}.json").write_text(
        json.dumps(protocol) + "\n" + json.dumps({"metaData": mapped})
    )
    with pytest.raises(Fatal, match="maps its columns to other names"):
        refuse_table(DeltaTable(url), ON_S3, "sink 'out'")
