"""Interrupts during the import of modules, which takes longer than most conversions."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import NoReturn

_INTERRUPTED = 130


def end_on_interrupt() -> None:
    """Let an interrupt end the program in one line, unless interrupts are ignored or handled."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end_program)


@contextmanager
def raise_on_interrupt() -> Iterator[None]:
    """Let an interrupt raise KeyboardInterrupt again, so that files can be cleaned up."""
    ends = signal.getsignal(signal.SIGINT) is _end_program
    if ends:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        if ends:
            end_on_interrupt()


def is_program() -> bool:
    """Return whether the package is loaded by its own program, not as a library."""
    words = sys.orig_argv
    as_module = any(pair == ("-m", "tflite2onnx") for pair in pairwise(words))
    return as_module if sys.argv[:1] == ["-m"] else Path(*sys.argv[:1]).stem == "tflite2onnx"


def _end_program(number: int, frame: FrameType | None) -> NoReturn:
    """End the process without Python's cleanup, which another interrupt might break."""
    del number, frame
    os.write(2, b"tflite2onnx: interrupted\n")
    os._exit(_INTERRUPTED)
