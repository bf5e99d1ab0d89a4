"""Compare symmetric integers with the file's, in decibels: scripts/symmetric.py MODEL.tflite ...

The lines are for docs/integer-kernels.md. Each model is converted twice, and its outputs
are compared with LiteRT's on the random inputs that `verify` chooses. The lowest signal-to-noise
ratio of the outputs counts. Each model runs in a process of its own, because LiteRT may crash.
"""

from __future__ import annotations

import usage  # noqa: F401 - packages may be missing

import logging
import sys
from pathlib import Path

from isolation import print_table

from tflite2onnx import ConversionError, convert, verify

_COLUMNS = ("network", "the file's zero points", "`--quantization symmetric`")


def describe(path: Path) -> list[str]:
    """Return the cells of a model, or the reason why there are none."""
    logging.disable(logging.WARNING)
    cells = []
    for quantization in ("qdq", "symmetric"):
        try:
            result = convert(path, quantization=quantization, io_type="float")
            outputs = verify(path, result, tensors=False).outputs
        except ConversionError as error:
            return [str(error).splitlines()[-1].strip()]
        lowest = min(output.decibels for output in outputs)
        steps = max(output.largest for output in outputs)
        cells.append(f"{lowest:.1f} dB, {steps:.3g}".replace("inf dB, 0", "equal"))
    return cells


if __name__ == "__main__":
    print_table(_COLUMNS, describe, sys.argv[1:])
