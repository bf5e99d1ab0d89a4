"""Count the networks that converters convert, and whose outputs are LiteRT's.

Each network is converted by each command, and ONNX Runtime and LiteRT run it on the same random
inputs. The script prints a line for each network that is not equal, and a table of the counts::

    python scripts/compare_converters.py FOLDER \
        --command 'tflite2onnx=tflite2onnx -q {tflite} {onnx}' \
        --command 'tf2onnx=OTHER/bin/python -m tf2onnx.convert --tflite {tflite} --output {onnx}'

An output is equal if it is within the limits of `tflite2onnx verify`: 1e-4 of the range, one step
or 30 dB in a quantized network, or as near as LiteRT's own kernels are to each other. The nearest
of LiteRT's kernels count. Inputs and outputs belong together by name, else by their position;
where the shape is another, the axes are permuted, channels first if possible. Every network runs in
a process of its own, because LiteRT ends the process on some networks.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from itertools import combinations, permutations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmark import convert, named_command
from inference import make_array, open_session
from isolation import in_new_process

from tflite2onnx.errors import VerifyError
from tflite2onnx.tensor import Array
from tflite2onnx.verification.runtimes import (
    FASTEST_KERNELS,
    REFERENCE_KERNELS,
    has_quantized_tensors,
    open_interpreter,
    run_litert,
)
from tflite2onnx.verification.tolerance import Limits, compare

EQUAL, REFUSED = "equal", "not converted"
_FLOATS, _INTEGERS = Limits(part=1e-4), Limits(part=1e-4, decibels=30)
_MOST_AXES = 5  # all permutations of these are tried
_WIDTH = 200  # characters of a message


def compare_network(tflite: Path, onnx: Path) -> str:
    """Return EQUAL, or what is wrong with a converted network."""
    interpreters = list(open_kernels(tflite))
    details = interpreters[0].get_input_details()
    limits = _INTEGERS if has_quantized_tensors(interpreters[0]) else _FLOATS
    arrays = [make_array(detail["shape"], detail["dtype"].__name__) for detail in details]
    litert = [run_litert(interpreter, arrays) for interpreter in interpreters]
    try:
        session = open_session(onnx, 1)
        inputs = dict(zip((detail["name"] for detail in details), arrays, strict=True))
        feeds = {
            port.name: permute(select(inputs, port.name, i), port.shape)
            for i, port in enumerate(session.get_inputs())
        }
        outputs = [port.name for port in session.get_outputs()]
        results = dict(zip(outputs, session.run(None, feeds), strict=True))
    except Exception as error:  # noqa: BLE001 - a runtime may raise anything
        return f"ONNX Runtime: {str(error).strip().splitlines()[0]}"
    for i, detail in enumerate(interpreters[0].get_output_details()):
        name, zero_point = detail["name"], detail["quantization"][1]
        arrays = [kernels[i] for kernels in litert]
        onnx_array = permute(select(results, name, i), arrays[0].shape)
        found = [compare(name, array, onnx_array, limits, zero_point) for array in arrays]
        noise = max(
            (compare(name, a, b, limits, zero_point).largest for a, b in combinations(arrays, 2)),
            default=0.0,
        )
        best = min(found, key=lambda difference: difference.severity)
        if not best.ok and not best.largest <= noise:
            return best.complaint
    return EQUAL


def open_kernels(tflite: Path) -> Iterator[Any]:
    """Yield an interpreter for each kind of LiteRT's kernels that runs a network."""
    yield open_interpreter(tflite)
    for kernels in (FASTEST_KERNELS, REFERENCE_KERNELS):
        with suppress(VerifyError):
            yield open_interpreter(tflite, kernels)


def select(arrays: Mapping[str, Array], name: str, position: int) -> Array:
    """Return the array of a name, or at a position if no array has the name."""
    return arrays[name] if name in arrays else [*arrays.values()][position]


def permute(array: Array, shape: Sequence[int | str]) -> Array:
    """Return an array with its axes in the order of a shape, the channels first if both fit."""
    axes = range(array.ndim)
    orders = [tuple(axes), (0, array.ndim - 1, *axes[1:-1]), *permutations(axes)]
    for order in orders[: None if array.ndim <= _MOST_AXES else 1]:
        pairs = zip(shape, (array.shape[axis] for axis in order), strict=False)
        if len(shape) == array.ndim and all(a == b for a, b in pairs if isinstance(a, int)):
            return array.transpose(order)
    return array


def describe_network(tflite: Path, command: list[str], timeout: float) -> str:
    """Return EQUAL, or why a command does not make an equal network of a TFLite file."""
    with TemporaryDirectory() as folder:
        onnx = Path(folder) / "model.onnx"
        run = convert(command, tflite, onnx, timeout)
        if run.status != "exit 0":
            return f"{REFUSED}: {run.status}: {run.message}"
        try:
            return in_new_process(compare_network, tflite, onnx)
        except BrokenProcessPool:
            return "a runtime ends the process"
        except VerifyError as error:
            return f"LiteRT: {error}"


def main() -> None:
    """Compare the commands."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, nargs="+", help="folders of models, or models")
    parser.add_argument("--command", type=named_command, action="append", required=True)
    parser.add_argument("--timeout", type=float, default=300, help="seconds of a conversion")
    arguments = parser.parse_args()
    files = [f for path in arguments.folder for f in sorted(path.rglob("*.tflite")) or [path]]
    print("| converter | networks | converted | equal |\n| --- | --- | --- | --- |")
    for name, command in arguments.command:
        outcomes = Counter[str]()
        for file in files:
            outcome = describe_network(file, command, arguments.timeout)
            outcomes[outcome.partition(":")[0]] += 1
            if outcome != EQUAL:
                print(f"{name}, {file.name}: {outcome[:_WIDTH]}", file=sys.stderr, flush=True)
        converted = len(files) - outcomes[REFUSED]
        print(f"| {name} | {len(files)} | {converted} | {outcomes[EQUAL]} |", flush=True)


if __name__ == "__main__":
    main()
