"""Convert damaged models in a process of its own: little memory, a time for each, no mercy.

    python -m tests.fuzz.run FIRST LAST MODEL...

damages each model with the seeds from FIRST up to LAST, or, where both are the same, cuts it off
at every length. Every conversion has to give a result, which is written to nowhere, or to raise a
ConversionError; none is to say that the fault is the converter's. What does not is named. The last
model is kept in the file that the environment variable KEEP names: it is the one that ended the
process if none is named.
"""

from __future__ import annotations

import faulthandler
import os
import resource
import signal
import sys
import traceback
import warnings
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from tests.fuzz.mutate import mutate
from tflite2onnx import ConversionError, convert

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

MEMORY = 1 << 30
SECONDS = 10  # of processor time, for one conversion


class TooLongError(BaseException):
    """A conversion that does not end."""


class TooLargeError(BaseException):
    """A conversion that asked for more memory than there is."""


def convert_outcome(data: bytes) -> str:
    """Return what became of a model: "converted" or "refused".

    Raises:
        BaseException: anything else.
    """
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        convert(data).save(os.devnull)
    except ConversionError as error:
        if isinstance(error.__cause__, MemoryError):
            raise TooLargeError from error
        if "a bug in the converter" in str(error):
            raise
        return "refused"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return "converted"


def cases(data: bytes, seeds: range) -> Iterator[tuple[str, bytes]]:
    """Yield damaged models with what has been done to them."""
    for seed in seeds:
        yield f"seed {seed}", mutate(data, seed)
    for length in () if seeds else range(len(data)):
        yield f"the first {length} bytes", data[:length]


def limit() -> None:
    """Make the process die of what it must not do."""
    faulthandler.enable()
    warnings.simplefilter("error")
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise TooLongError

    signal.signal(signal.SIGPROF, stop)


def main(first: int, last: int, *paths: str) -> int:
    """Convert all; return 1 if one went wrong."""
    limit()
    counts: Counter[str] = Counter()
    for path in paths:
        data = Path(path).read_bytes()
        for name, damaged in cases(data, range(first, last)):
            if keep := os.environ.get("KEEP"):
                Path(keep).write_bytes(damaged)
            try:
                counts[convert_outcome(damaged)] += 1
            except BaseException:  # noqa: BLE001 - that is the question
                counts["FAILED"] += 1
                sys.stdout.write(f"FAILED {path}, {name}\n{traceback.format_exc()}\n")
    sys.stdout.write(f"{dict(counts)}\n")
    return int("FAILED" in counts)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:]))
