import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Purchase(_message.Message):
    __slots__ = ("user", "amount", "ts", "shop")
    USER_FIELD_NUMBER: _ClassVar[int]
    AMOUNT_FIELD_NUMBER: _ClassVar[int]
    TS_FIELD_NUMBER: _ClassVar[int]
    SHOP_FIELD_NUMBER: _ClassVar[int]
    user: str
    amount: int
    ts: _timestamp_pb2.Timestamp
    shop: str
    def __init__(self, user: _Optional[str] = ..., amount: _Optional[int] = ..., ts: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., shop: _Optional[str] = ...) -> None: ...

class Total(_message.Message):
    __slots__ = ("user", "window_end", "count", "total")
    USER_FIELD_NUMBER: _ClassVar[int]
    WINDOW_END_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    user: str
    window_end: _timestamp_pb2.Timestamp
    count: int
    total: int
    def __init__(self, user: _Optional[str] = ..., window_end: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., count: _Optional[int] = ..., total: _Optional[int] = ...) -> None: ...
