"""What an error of the server means for whoever writes. Pure."""

from __future__ import annotations

import re

import pymysql

from onceflow.connectors.sql_tables.session import BadRowsError
from onceflow.runtime.errors import Fatal, Indeterminate, OnceflowError, Retryable

CHANGED_VALUES = frozenset((1048, 1264, 1265, 1292, 1364, 1366, 1367, 1406, 1441, 1452, 1062, 1586))
"""Errors of values in strict mode. As a warning or a note they would mean a value that was changed."""
_BAD_ROWS = CHANGED_VALUES | {
    *(1216, 1217, 1451),  # foreign keys
    *(3819, 4025),  # CHECK, of MySQL and of MariaDB
    *(3140, 3141, 3156),  # JSON
    *(1416, 1690, 1365, 1411, 1526, 1644, 1748, 3903),  # geometry, range, partitions, SIGNAL in a trigger
    1118,  # the row is larger than a page takes
}
_PASSING = frozenset(
    (
        *(1205, 1213, 1206, 1020, 1614, 3058),  # waits for locks, deadlocks
        *(2000, 2002, 2003, 2005, 2006, 2013, 2014, 2027, 2055, 0),  # the connection, as the client says it
        *(1040, 1203, 1226, 1053, 1077, 1079, 1152, 1153, 1158, 1159, 1160, 1161, 1184, 1927, 4031),
        *(1021, 1028, 1030, 1037, 1038, 1041, 1114, 1135, 1180, 1181),  # room, memory, storage
        *(1290, 1792, 1836, 1047, 3100, 3101),  # a server that takes no writes now: another is promoted
        *(1317, 1969, 3024, 1412, 1615),  # statements that were ended
    )
)
_HOPELESS_ANSWERS = ("CERTIFICATE", "SSL", "certificate")
"""The client has one number for all connections that are refused: only its sentence tells."""
_NAMES = (
    re.compile(r"^CONSTRAINT `([^`]+)` failed"),
    re.compile(r"^Check constraint '([^']+)' is violated"),
    re.compile(r"CONSTRAINT `([^`]+)` FOREIGN KEY"),
    re.compile(r" for key '([^']+)'$"),
    re.compile(r"[Cc]olumn '([^']+)'"),
    re.compile(r"column `(?:[^`]+`\.`)*([^`]+)`"),
    re.compile(r"^Field '([^']+)'"),
)


def meaning(error: pymysql.Error, doing: str) -> OnceflowError | BadRowsError:
    """What to raise for an error of a statement before COMMIT, or of connecting: nothing was committed."""
    code, text = number(error), sentence(error)
    if code in _BAD_ROWS:
        return bad_rows(code, text)
    if code in _PASSING and not (code in (2003, 2002) and any(each in text for each in _HOPELESS_ANSWERS)):
        return Retryable(f"{doing}: {text} (error {code})")
    if isinstance(error, pymysql.InternalError) and not code:
        return Retryable(f"{doing}: {text}")
    return Fatal(f"{doing}: {text} (error {code})")


def meaning_of_commit(error: pymysql.Error) -> OnceflowError | BadRowsError:
    """What to raise for an error of COMMIT itself. A cluster refuses transactions there that collide with
    others; for all else the ledger decides."""
    if number(error) in (1205, 1213):
        return meaning(error, "committing")
    return Indeterminate(f"the commit has no answer: {sentence(error)}")


def bad_rows(code: int, text: str) -> BadRowsError:
    """The rows are refused, for what the server says."""
    found = (pattern.search(text) for pattern in _NAMES)
    name = next((match[1] for match in found if match is not None), "")
    return BadRowsError(text, name.rpartition(".")[2], str(code))


def number(error: pymysql.Error) -> int:
    """The server's number of the error, or the client's; 0: it has none."""
    code = error.args[0] if error.args else 0
    return code if isinstance(code, int) else 0


def sentence(error: pymysql.Error) -> str:
    said = error.args[1] if len(error.args) > 1 else error.args[0] if error.args else ""
    return str(said).strip().rstrip(".") or "the connection is closed"
