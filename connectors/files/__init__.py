"""Files in folders and object stores: `AvroFiles`, `Csv`, `JsonLines` and `Parquet` say how rows lie in
them, and `files_source` reads them."""

from onceflow.connectors.files.avro_files import AvroFiles
from onceflow.connectors.files.csv_files import Csv
from onceflow.connectors.files.json_lines import JsonLines
from onceflow.connectors.files.parquet_files import Parquet
from onceflow.connectors.files.source import files_source

__all__ = ["AvroFiles", "Csv", "JsonLines", "Parquet", "files_source"]
