"""Work in processes, several at a time; a crash of one process does not affect the others."""

import gc
import signal
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from multiprocessing import connection, get_context
from typing import Any, TypeVar

from tflite2onnx.utils.child_process import CAN_FORK

Piece = TypeVar("Piece")
Outcome = TypeVar("Outcome")


def run_in_processes(
    work: Callable[[Piece], Outcome], pieces: Sequence[Piece], number: int,
    crashed: Callable[[Piece, int], Outcome],
) -> Generator[tuple[int, Outcome], None, None]:  # fmt: skip
    """Do each piece of work in its own process, `number` at a time; yield indices and outcomes.

    Outcomes are yielded as the pieces end. If a process ends without an outcome, `crashed` makes an
    outcome from the piece and the exit status. All processes have ended when the iterator has.
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
                index, process = running.pop(receiver)
                outcome: tuple[Outcome] | None = None
                with receiver, suppress(EOFError):  # the child has ended without an outcome
                    outcome = receiver.recv()
                process.join()
                yield index, outcome[0] if outcome else crashed(pieces[index], process.exitcode)
    finally:
        for _, process in running.values():
            process.terminate()
            process.join()


def _send(work: Callable[[Piece], Outcome], piece: Piece, sender: Any) -> None:  # noqa: ANN401 - a Connection of one of several classes
    """Do a piece of work and send its outcome; only the parent handles interrupts.

    The child never frees objects of the parent: the destructor of a session of ONNX Runtime waits
    for threads, which a forked process does not have.
    """
    gc.freeze()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    outcome = work(piece)
    with suppress(BrokenPipeError):  # the parent has ended
        sender.send((outcome,))
