"""Calls in processes of their own: a runtime that crashes, or spoils its memory, harms no other.

Every call gets a fresh process, forked from a server that has imported the runtimes and what most
calls need, and done nothing else.
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


class Crashed(Exception):  # noqa: N818 - says what happened to the process
    """The process ended without an answer."""


def run_isolated(function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """Return what a function of a module makes of picklable arguments, or raise what it raises.

    Raises:
        Crashed: the process was ended by a signal, or by itself.
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
