"""Work in processes: several pieces at once, each of which may crash by itself."""

from __future__ import annotations

import signal
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from multiprocessing import connection, get_context
from typing import Any, TypeVar

from tflite2onnx.utils.child_process import CAN_FORK

Piece = TypeVar("Piece")
Outcome = TypeVar("Outcome")


def run_apart(
    work: Callable[[Piece], Outcome], pieces: Sequence[Piece], number: int,
    crashed: Callable[[Piece, int], Outcome],
) -> Generator[tuple[int, Outcome], None, None]:  # fmt: skip
    """Do each piece of work in a process of its own, `number` at once; yield what came of which.

    Pieces are yielded as they end. Of a process that ends without an outcome `crashed` makes one,
    of the piece and the exit status. All processes have ended when the iterator has.
    """
    context: Any = get_context("fork" if CAN_FORK else "spawn")
    waiting = deque(enumerate(pieces))
    running: dict[Any, tuple[int, Any]] = {}
    try:
        while waiting or running:
            while waiting and len(running) < number:
                index, piece = waiting.popleft()
                receiver, sender = context.Pipe(duplex=False)
                process = context.Process(target=_send, args=(work, piece, sender))
                process.start()
                sender.close()
                running[receiver] = index, process
            ready: Any = connection.wait(list(running))
            for receiver in ready:
                index, process = running[receiver]
                with receiver:
                    found = _receive_outcome(receiver)
                process.join()
                del running[receiver]
                yield index, found[0] if found else crashed(pieces[index], process.exitcode)
    finally:
        for _, process in running.values():
            process.terminate()
            process.join()


def _send(work: Callable[[Piece], Outcome], piece: Piece, sender: Any) -> None:  # noqa: ANN401 - a Connection of one of several classes
    """Do a piece of work and send what came of it; interrupts are the parent's."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    outcome = work(piece)
    with suppress(BrokenPipeError):  # the parent has ended
        sender.send((outcome,))


def _receive_outcome(receiver: Any) -> tuple[Any] | None:  # noqa: ANN401 - as above
    """Return what a process has sent, None if it ended before."""
    try:
        found: tuple[Any] = receiver.recv()
    except EOFError:
        return None
    return found
