"""A process of its own for what may crash, so that the one that was started can say that it did.

The two are as one to whoever sends a signal: what would end the first ends the second.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import NoReturn

_ENDING = ("SIGINT", "SIGTERM", "SIGHUP")
CAN_FORK = hasattr(os, "fork")


def run_in_child(main: Callable[[], int]) -> int:
    """Run a program in a child, and return its exit status; of one that crashed, minus the signal.

    A signal that asks this process to end is handed on to the child. If the child dies of it, so
    does this process, in the same way.
    """
    # One that comes before there is a child, or before it is known here, has to wait.
    numbers = {getattr(signal, name) for name in _ENDING}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    child = os.fork()
    if not child:
        signal.signal(signal.SIGINT, _interrupt_once(signal.getsignal(signal.SIGINT)))
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        _run_and_exit(main)
    with _forward_signals(numbers, child) as received:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if -status in received:
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    return status


def _run_and_exit(main: Callable[[], int]) -> NoReturn:
    try:
        status = main()
    except SystemExit as error:  # wrong usage
        status = int(error.code or 0)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # without what Python does at the end: destructors of a damaged library


_Handler = Callable[[int, FrameType | None], object]


def _interrupt_once(handler: _Handler | int | None) -> _Handler | int | None:
    """Return a handler that heeds an interrupt once; a terminal sends it to both processes."""
    if handler is not signal.default_int_handler:  # as it is ignored in the background
        return handler

    def handle_interrupt(number: int, frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_IGN)
        signal.default_int_handler(number, frame)

    return handle_interrupt


@contextlib.contextmanager
def _forward_signals(numbers: set[int], child: int) -> Iterator[set[int]]:
    """Hand signals on to a child, but for those that are ignored; give those that have come."""
    received: set[int] = set()

    def forward_signal(number: int, _: FrameType | None) -> None:
        received.add(number)
        with contextlib.suppress(ProcessLookupError):  # it has just ended
            os.kill(child, number)

    heeded = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, forward_signal) for number in heeded}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
