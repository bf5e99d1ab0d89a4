"""Calls in separate processes: a runtime that crashes or corrupts memory affects no other call.

Every call runs in a fresh process, forked from a server. The server has only imported the runtimes
and the modules that most calls need.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, ParamSpec, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["__main__", "tests.golden.closeness", "tests.conformance.matrix"])


class Crashed(Exception):  # noqa: N818 - the state of the process
    """The process ended without a result."""


def run_isolated(function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """Call a function of a module with picklable arguments; return its result or raise its error.

    Raises:
        Crashed: the process was ended by a signal, or exited.
    """
    receiver, sender = _context.Pipe(duplex=False)
    process = _context.Process(target=_answer, args=(sender, function, args, kwargs))
    process.start()
    sender.close()
    try:
        answer, error = receiver.recv()
    except EOFError:
        process.join()
        raise Crashed(
            f"{function.__name__} ended its process: exit code {process.exitcode}"
        ) from None
    process.join()
    if error is not None:
        raise error
    result: _T = answer
    return result


def _answer(sender: Connection, function: Callable[..., Any], args: Any, kwargs: Any) -> None:
    try:
        sender.send((function(*args, **kwargs), None))
    except Exception as error:  # noqa: BLE001 - raised again by the caller
        sender.send((None, error))
