"""Uploads: the calls of S3 that a sink needs, by s3fs, whose credentials and options reading has too."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from onceflow.runtime.errors import Fatal, Unavailable

_NO_UPLOAD = "NoSuchUpload"


class GoneError(Exception):
    """There is no such upload: it was completed, aborted, or never begun."""


class Uploads:
    """One bucket. Any thread may call it. Raises Unavailable for what may pass, Fatal for what is not
    permitted."""

    def __init__(self, fs: Any, bucket: str) -> None:
        """`fs`: an s3fs.S3FileSystem."""
        self._fs = fs
        self.bucket = bucket

    def begin(self, key: str) -> str:
        """The id of a new upload."""
        return str(self._call("create_multipart_upload", Key=key)["UploadId"])

    def add(self, key: str, upload: str, number: int, content: bytes) -> str:
        """Part `number`, from 1; its tag. One that is there is replaced. Raises GoneError."""
        return str(
            self._call("upload_part", Key=key, UploadId=upload, PartNumber=number, Body=content)["ETag"]
        )

    def complete(self, key: str, upload: str, etags: Sequence[str]) -> None:
        """The object is there, whole. Raises GoneError, also if this did it before."""
        parts = [{"PartNumber": number, "ETag": etag} for number, etag in enumerate(etags, 1)]
        self._call("complete_multipart_upload", Key=key, UploadId=upload, MultipartUpload={"Parts": parts})

    def is_there(self, key: str, upload: str) -> bool:
        """Whether this upload is begun, and neither completed nor aborted."""
        try:
            self._call("list_parts", Key=key, UploadId=upload, MaxParts=1)
        except GoneError:
            return False
        return True

    def abort(self, key: str, upload: str) -> None:
        """One that is not there is no error."""
        try:
            self._call("abort_multipart_upload", Key=key, UploadId=upload)
        except GoneError:
            return

    def begun(self, prefix: str) -> Iterator[tuple[str, str]]:
        """(key, id) of each upload below a prefix that is neither completed nor aborted."""
        markers: dict[str, str] = {}
        while True:
            page = self._call("list_multipart_uploads", Prefix=prefix, **markers)
            yield from ((each["Key"], each["UploadId"]) for each in page.get("Uploads") or ())
            if not page.get("IsTruncated"):
                return
            markers = {"KeyMarker": page["NextKeyMarker"], "UploadIdMarker": page["NextUploadIdMarker"]}

    def size(self, key: str) -> int | None:
        """The size of an object; None: there is none."""
        try:
            return int(self._call("head_object", Key=key)["ContentLength"])
        except FileNotFoundError:
            return None

    def get(self, key: str) -> bytes:
        """Raises FileNotFoundError."""
        try:
            # In one request: otherwise it is told the size by listings that were kept, maybe from before.
            return bytes(self._fs.cat_file(f"{self.bucket}/{key}", max_concurrency=1))
        except (PermissionError, OSError) as error:
            raise _named(error, "get_object", f"{self.bucket}/{key}") from error

    def put(self, key: str, content: bytes) -> None:
        self._call("put_object", Key=key, Body=content)

    def create(self, key: str, content: bytes) -> None:
        """An object that was not there. Raises FileExistsError."""
        self._call("put_object", Key=key, Body=content, IfNoneMatch="*")

    def delete(self, keys: Sequence[str]) -> None:
        for first in range(0, len(keys), 1000):
            some = [{"Key": key} for key in keys[first : first + 1000]]
            self._call("delete_objects", Delete={"Objects": some, "Quiet": True})

    def names(self, prefix: str) -> list[str]:
        """What is below a prefix that ends with "/", without it."""
        found: list[str] = []
        more: dict[str, str] = {}
        while True:
            page = self._call("list_objects_v2", Prefix=prefix, **more)
            found += [each["Key"].removeprefix(prefix) for each in page.get("Contents") or ()]
            if not page.get("IsTruncated"):
                return found
            more = {"ContinuationToken": page["NextContinuationToken"]}

    def _call(self, method: str, **arguments: Any) -> Any:
        try:
            return self._fs.call_s3(method, Bucket=self.bucket, **arguments)
        except (PermissionError, OSError) as error:
            raise _named(error, method, f"{self.bucket}/{arguments.get('Key', '')}") from error


def _named(error: OSError, method: str, where: str) -> Exception:
    """What the caller does next, as a type."""
    response = getattr(error.__cause__, "response", None) or {}
    code = response.get("Error", {}).get("Code", "")
    if code == _NO_UPLOAD:
        return GoneError(where)
    if code == "PreconditionFailed":
        return FileExistsError(where)
    if code in ("NoSuchBucket", "InvalidAccessKeyId", "SignatureDoesNotMatch") or isinstance(
        error, PermissionError
    ):
        return Fatal(
            f"s3://{where}: {method} is refused: {error}; see the bucket, the credentials "
            "and their permissions"
        )
    if isinstance(error, FileNotFoundError):
        return error
    return Unavailable(f"s3://{where}: {method}: {error}; it is tried again")
