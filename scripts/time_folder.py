"""Compare the time of one command for several models with a command for each model.

    python scripts/time_folder.py --runs 3 model1.tflite model2.tflite ...

The script prints the wall time of both in seconds, and their ratio. The start of Python takes most
of the time of a small conversion, and one command starts Python once.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

PROGRAM = (sys.executable, "-m", "tflite2onnx", "-q")


def time_commands(commands: Sequence[Sequence[str]]) -> float:
    """Return the total seconds of commands that run one after the other."""
    start = time.perf_counter()
    for words in commands:
        subprocess.run(words, check=True)  # noqa: S603 - our own program
    return time.perf_counter() - start


def time_both(models: Sequence[str]) -> tuple[float, float]:
    """Return the seconds of one command for all models, and of a command for each."""
    with TemporaryDirectory() as folder:
        together = [[*PROGRAM, *models, "-o", folder]]
        apart = [[*PROGRAM, model, f"{folder}/{i}.onnx"] for i, model in enumerate(models)]
        return time_commands(together), time_commands(apart)


def main() -> None:
    """Read the command line, and print the medians of the runs."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("models", nargs="+", metavar="model.tflite")
    parser.add_argument("--runs", type=int, default=3, help="counted runs (default 3)")
    options = parser.parse_args()
    if options.runs < 1:
        parser.error(f"--runs must be at least 1, got {options.runs}")
    if missing := [model for model in options.models if not Path(model).is_file()]:
        parser.error(f"no such file: {', '.join(missing)}")
    time_both(options.models)  # the first run compiles bytecode and fills the file cache
    runs = [time_both(options.models) for _ in range(options.runs)]
    together, apart = (median(times) for times in zip(*runs, strict=True))
    print(
        f"{len(options.models)} models: one command {together:.2f} s, a command for each", end=" "
    )
    print(f"{apart:.2f} s, ratio {median(a / b for a, b in runs):.2f}")


if __name__ == "__main__":
    main()
