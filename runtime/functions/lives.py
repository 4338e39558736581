"""The life of function objects: an instance for each subtask and attempt, opened before its first record,
closed when the attempt ends, however that comes."""

from __future__ import annotations

import copy
import inspect
import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType, MethodType, ModuleType
from typing import Any

from onceflow.runtime.errors import GraphError, UserFunctionError
from onceflow.runtime.functions.context import FunctionContext
from onceflow.runtime.types.user_functions import function_name, user_error_at

INITIALIZE, SNAPSHOT = "initialize_state", "snapshot_state"
"""What a function object may define besides open and close, if it keeps state without a key."""


@dataclass(frozen=True, slots=True)
class Life:
    """The object behind a function, and what of `open(self, ctx)` and `close(self)` its class defines."""

    owner: Any
    open: Callable[[FunctionContext], Any] | None
    close: Callable[[], Any] | None


def life_of(function: Any) -> Life | None:
    """The life of a function object, or of the object whose method a function is; None: it has none, as a
    plain function."""
    owner = function.__self__ if isinstance(function, MethodType) else function
    if isinstance(owner, type | FunctionType | ModuleType):
        return None
    found = [method_of(owner, name) for name in ("open", "close")]
    if not any(found) and not keeps_state(owner):
        return None
    return Life(owner, *found)


def keeps_state(owner: Any) -> bool:
    """Whether the class of a function object declares state without a key, or what is called with it."""
    of_class = (value for each in type(owner).__mro__ for value in vars(each).values())
    return any(method_of(owner, name) for name in (INITIALIZE, SNAPSHOT)) or any(
        getattr(value, "is_kept_for_function", False) for value in of_class
    )


def check_life(function: Any, uid: str) -> None:
    """Raises GraphError if a method of a function object can't be called as it will be when its subtask
    begins or ends, or at a checkpoint."""
    life = life_of(function)
    if life is None:
        return
    hooks = [(method_of(life.owner, name), f"{name}(self, ctx)") for name in (INITIALIZE, SNAPSHOT)]
    for method, wanted in ((life.open, "open(self, ctx)"), (life.close, "close(self)"), *hooks):
        arguments = (None,) if "ctx" in wanted else ()
        if method is not None and not _takes(method, *arguments):
            raise GraphError(
                f"operator {uid!r}: {function_name(method)} can't be called as `{wanted}`, which it is when "
                "a subtask begins or ends, or at a checkpoint: define it so, or give it another name"
            )


def own_instance(function: Any, uid: str) -> Any:
    """The function for one subtask: a deep copy if it has a life, since subtasks may be threads of one
    process, and the next attempt needs one that was never opened; else the function itself."""
    life = life_of(function)
    if life is None:
        return function
    try:
        owner = copy.deepcopy(life.owner)
    except Exception as error:
        raise UserFunctionError(
            f"operator {uid!r}: {type(life.owner).__qualname__} can't be copied for each subtask ({error}): "
            "make what can't be copied in its open(self, ctx)"
        ) from error
    return MethodType(function.__func__, owner) if isinstance(function, MethodType) else owner


Run = Callable[..., Any]
"""Makes a call: `run(function, *arguments)`."""


class FunctionLives:
    """The function objects of one slot that were opened and have to be closed. `open` may be called on any
    thread; `close` once, on the slot's own."""

    def __init__(
        self, on_trouble: Callable[[str], None], on_to_close: Callable[[], None] = lambda: None
    ) -> None:
        """`on_trouble` is told what went wrong while closing; `on_to_close` is called once, when the first
        function with a close() is open."""
        self._on_trouble = on_trouble
        self._on_to_close = on_to_close
        self._opened: list[tuple[Life, str, Run]] = []
        self._is_closed = False
        self._lock = threading.Lock()
        self.closing: str | None = None
        """The close() that is running, for people."""

    def open(self, function: Any, context: FunctionContext, run: Run | None = None) -> None:
        """Call open(ctx) of a function object, if it has one. An object whose open raised is not closed, as
        with `with`. `run` makes the calls of open and close, if they belong on another thread. Raises
        UserFunctionError, and a Retryable of the user's."""
        life = life_of(function)
        if life is None:
            return
        if life.open is not None:
            place = f"subtask {context.subtask} of {context.parallelism}"
            try:
                (run or _call)(life.open, context)
            except Exception as error:
                raise user_error_at(context.uid, life.open, error, place) from error
        if life.close is None:
            return
        opened = (life, context.uid, run or _call)
        with self._lock:
            if not self._is_closed:
                if not self._opened:
                    self._on_to_close()
                self._opened.append(opened)
                return
        self._close(*opened)  # on another thread, when the slot was over

    @property
    def has_to_close(self) -> bool:
        """Whether `close` has something to call."""
        return bool(self._opened)

    def close(self) -> None:
        """Close all, the last opened first. Never raises: what one raises is told, and the next one's turn
        comes."""
        with self._lock:
            self._is_closed = True
        while self._opened:
            self._close(*self._opened.pop())

    def _close(self, life: Life, uid: str, run: Run) -> None:
        assert life.close is not None
        self.closing = f"operator {uid!r}: {function_name(life.close)}"
        try:
            run(life.close)
        except Exception as error:
            self._on_trouble(str(user_error_at(uid, life.close, error, "the end of its subtask")))
        finally:
            self.closing = None


def _call(function: Callable[..., Any], *arguments: Any) -> Any:
    return function(*arguments)


def method_of(owner: Any, name: str) -> Any:
    """The method of this name, if the owner's class defines it in Python."""
    return getattr(owner, name) if isinstance(getattr(type(owner), name, None), FunctionType) else None


def _takes(method: Callable[..., Any], *arguments: Any) -> bool:
    try:
        inspect.signature(method).bind(*arguments)
    except (TypeError, ValueError):
        return False
    return True
