"""Compare symmetric integers with the file's, in decibels: scripts/symmetric.py MODEL.tflite ...

The lines of the table are for docs/quantization.md. Each model is converted twice, and its outputs
are compared with LiteRT's on the random inputs that `verify` chooses. The lowest signal-to-noise
ratio of the outputs counts. Each model runs in a process of its own, because LiteRT may crash.
"""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

from tflite2onnx import ConversionError, convert, verify

_ONE = "--one"


def describe(path: Path) -> str:
    """Return the line of a model, or the reason why there is none."""
    cells = []
    for quantization in ("qdq", "symmetric"):
        try:
            result = convert(path, quantization=quantization, io_type="float")
            outputs = verify(path, result, tensors=False).outputs
        except ConversionError as error:
            return f"| {path.stem} | {str(error).splitlines()[-1].strip()} | |"
        lowest = min(output.decibels for output in outputs)
        steps = max(output.largest for output in outputs)
        cells.append(f"{lowest:.1f} dB, {steps:.3g}")
    return f"| {path.stem} | {' | '.join(cells)} |".replace("inf dB, 0", "equal")


def main(arguments: list[str]) -> None:
    """Print the table."""
    if arguments[:1] == [_ONE]:
        logging.disable(logging.WARNING)
        print(describe(Path(arguments[1])))
        return
    print("| network | the file's zero points | `--quantization symmetric` |\n| --- | --- | --- |")
    for path in arguments:
        command = [sys.executable, __file__, _ONE, path]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
        print(done.stdout.strip() or f"| {Path(path).stem} | LiteRT crashes | |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
