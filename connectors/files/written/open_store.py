"""Which file systems a sink can write to, and the store of each."""

from __future__ import annotations

import importlib.util

from onceflow.connectors.files.place import Place
from onceflow.connectors.files.written.compaction import HIDDEN
from onceflow.connectors.files.written.folder_files import FolderFiles, LocalFiles
from onceflow.connectors.files.written.hdfs_folder_files import HdfsFiles
from onceflow.connectors.files.written.output_store import OutputStore
from onceflow.connectors.files.written.renamed_store import RenamedStore
from onceflow.connectors.files.written.uploaded_store import UploadedStore
from onceflow.connectors.files.written.uploads import Uploads
from onceflow.runtime.errors import OptionError

_HDFS, _S3, _LOCAL = ("hdfs", "viewfs"), ("s3", "s3a"), ("file", "local")
_REFUSED = {
    "memory": "what is in it is seen by one process only, and slots and driver are several",
    "gs": "whether its creates and uploads keep their word has not been proven here",
    "gcs": "whether its creates and uploads keep their word has not been proven here",
    "abfs": "whether its creates and uploads keep their word has not been proven here",
    "az": "whether its creates and uploads keep their word has not been proven here",
    "http": "nothing can be written there so that it is seen whole or not at all",
    "https": "nothing can be written there so that it is seen whole or not at all",
}
_SUITABLE = "write to a path of this machine, a mounted folder, s3:// or hdfs://"


def check_can_write(place: Place, where: str) -> None:
    """Raises OptionError, which begins with `where`, for a file system on which a file can't be shown whole
    and once. Asks nobody."""
    protocol = _protocol(place.url)
    if protocol in _HDFS and importlib.util.find_spec("hdfs_native") is None:
        raise OptionError(f"{where}: {protocol}:// needs a package: pip install 'onceflow[hdfs]'")
    if protocol in _S3 and importlib.util.find_spec("s3fs") is None:
        raise OptionError(f"{where}: {protocol}:// needs a package: pip install 'onceflow[s3]'")
    if protocol not in (*_HDFS, *_S3, *_LOCAL):
        reason = _REFUSED.get(protocol, "it is not known whether files can be shown there whole and once")
        raise OptionError(f"{where}: files are not written to {protocol}://: {reason}; {_SUITABLE}")


def stays_open(url: str) -> bool:
    """Whether a file of lines may go on behind a checkpoint there: on HDFS only its writer knows how long
    a file is that is open."""
    return _protocol(url) not in _HDFS


def open_store(place: Place, lineage: str, uid: str) -> OutputStore:
    """The store of one sink of one job; `check_can_write` came before."""
    protocol, folder = _protocol(place.url), place.path.rstrip("/")
    beside = f"{HIDDEN}/{lineage}.{uid}"
    if protocol in _S3:
        bucket, _, key = folder.partition("/")
        below = f"{key}/{beside}" if key else beside
        return UploadedStore(
            Uploads(place.fs, bucket), key, below, lambda name: is_name_of(name, uid, lineage)
        )
    files: FolderFiles = HdfsFiles(place.fs) if protocol in _HDFS else LocalFiles()
    return RenamedStore(files, folder, f"{folder}/{beside}")


def part_name(uid: str, checkpoint_id: int, subtask: int, number: int, lineage: str, ending: str) -> str:
    """The name of a file that is begun after one checkpoint, and so is in `checkpoint_id` at the earliest.

    No two parts that are ever shown share one: what an attempt begins after its last durable checkpoint is
    lost with it, and only then the next one begins such a name again.
    """
    return f"{uid}-{checkpoint_id:010d}-{subtask:04d}-{number:03d}-{lineage[:8]}{ending}"


def is_name_of(path: str, uid: str, lineage: str) -> bool:
    """Whether `part_name` has made the last part of this path for this sink of this job."""
    name = path.rpartition("/")[2]
    return name.startswith(f"{uid}-") and f"-{lineage[:8]}." in name


def begun_at(path: str, uid: str, lineage: str) -> int | None:
    """The checkpoint id in a name that `part_name` has made for this sink of this job; None: it has not."""
    if not is_name_of(path, uid, lineage):
        return None
    number = path.rpartition("/")[2].removeprefix(f"{uid}-").partition("-")[0]
    return int(number) if len(number) == 10 and number.isdecimal() else None


def _protocol(url: str) -> str:
    return url.partition("://")[0].rpartition("::")[2] if "://" in url else "file"
