"""Run a function in a forked child, so that a crash there becomes an exit status here.

Signals are forwarded to the child.
"""

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
    """Run a function in a child, and return its exit status, or minus the signal that killed it.

    A signal that asks this process to end is forwarded to the child. If the signal kills the child,
    this process kills itself with the same signal.
    """
    # Signals are blocked until the child exists and its process id is stored.
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
    except SystemExit as error:  # argparse raises SystemExit for wrong usage
        status = int(error.code or 0)
    exit_at_once(status)  # destructors of a library with damaged memory would run otherwise


def exit_at_once(status: int) -> NoReturn:
    """End the process without the destructors, which take longer than many conversions."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


_Handler = Callable[[int, FrameType | None], object]


def _interrupt_once(handler: _Handler | int | None) -> _Handler | int | None:
    """Return a handler that raises KeyboardInterrupt only once.

    An interrupt may come twice: a terminal sends it to both processes, and the parent forwards it.
    """
    # A shell starts background processes so that they ignore interrupts.
    if handler is not signal.default_int_handler:
        return handler

    def handle_interrupt(number: int, frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_IGN)
        signal.default_int_handler(number, frame)

    return handle_interrupt


@contextlib.contextmanager
def _forward_signals(numbers: set[int], child: int) -> Iterator[set[int]]:
    received: set[int] = set()

    def forward_signal(number: int, _: FrameType | None) -> None:
        received.add(number)
        with contextlib.suppress(ProcessLookupError):  # the child may have ended meanwhile
            os.kill(child, number)

    handled = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, forward_signal) for number in handled}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
