"""Convert damaged models with limits on memory and time.

    python -m tests.fuzz.run FIRST LAST MODEL...

damages each model with the seeds from FIRST up to LAST. If FIRST equals LAST, each model is
truncated at every length instead. Every conversion must succeed, or must raise a ConversionError
that does not report a bug of the converter. All other conversions are printed. If the environment
variable KEEP is set, each model is written to the file that it names before its conversion, so
that a model that crashes the process is found there.
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
from tflite2onnx.errors import InternalWarning

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

MEMORY = 1 << 30
SECONDS = 10  # processor time for one conversion


class TooLongError(BaseException):
    """A conversion took too much processor time."""


class TooLargeError(BaseException):
    """A conversion needed too much memory."""


def convert_outcome(data: bytes) -> str:
    """Return the outcome of a conversion: "converted" or "refused".

    Raises:
        BaseException: anything else.
    """
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", InternalWarning)
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
    """Yield damaged models with descriptions of the damage."""
    for seed in seeds:
        yield f"seed {seed}", mutate(data, seed)
    for length in () if seeds else range(len(data)):
        yield f"the first {length} bytes", data[:length]


def set_limits() -> None:
    """Limit memory and time of this process, and make warnings errors."""
    faulthandler.enable()
    warnings.simplefilter("error")
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise TooLongError

    signal.signal(signal.SIGPROF, stop)


def main(first: int, last: int, *paths: str) -> int:
    """Convert all models; return 1 if a conversion failed."""
    set_limits()
    counts: Counter[str] = Counter()
    for path in paths:
        data = Path(path).read_bytes()
        for name, damaged in cases(data, range(first, last)):
            if keep := os.environ.get("KEEP"):
                Path(keep).write_bytes(damaged)
            try:
                counts[convert_outcome(damaged)] += 1
            except BaseException:  # noqa: BLE001 - any other exception is a failure
                counts["FAILED"] += 1
                sys.stdout.write(f"FAILED {path}, {name}\n{traceback.format_exc()}\n")
    sys.stdout.write(f"{dict(counts)}\n")
    return int("FAILED" in counts)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:]))
