"""Compare outputs of dynamic range with LiteRT's default kernels, in decibels.

    python scripts/signal_to_noise.py MODEL.tflite ...

The lines of the table are for docs/integer-kernels.md. The signal is what LiteRT computes with its
default kernels (XNNPACK) from random inputs. The noise is the difference of the signal from what
three others compute: the ONNX model in ONNX Runtime; LiteRT's own kernels without XNNPACK; and
LiteRT's default kernels again, from float inputs that differ by up to a millionth of themselves.
The last number shows how far the network spreads other roundings of floats. The lowest ratio of all
outputs and samples counts, "equal" is no difference, and "-" a network without float inputs. Each
model runs in a process of its own, because LiteRT may crash.
"""

from __future__ import annotations

import usage  # noqa: F401 - packages may be missing

import logging
import sys
from pathlib import Path

import numpy as np
from isolation import print_table

from tflite2onnx import ConversionError, convert
from tflite2onnx.tensor import Array
from tflite2onnx.verification.inputs import draw_inputs, restore_layouts, store_inputs
from tflite2onnx.verification.onnx_model import open_model
from tflite2onnx.verification.runtimes import (
    FASTEST_KERNELS,
    PLAIN_KERNELS,
    open_interpreter,
    run_litert,
    run_onnx,
)
from tflite2onnx.verification.tolerance import compare

_SAMPLES = 3
_MOVE = 1e-6
_COLUMNS = (
    *("network", "ONNX Runtime", "LiteRT without XNNPACK"),
    "LiteRT, inputs moved by a millionth",
)


def describe(path: Path) -> list[str]:
    """Return the cells of a model, or the reason why there are none."""
    logging.disable(logging.WARNING)
    try:
        return [*map(_format_decibels, measure_ratios(path))]
    except ConversionError as error:
        return [str(error).splitlines()[-1].strip()]


def measure_ratios(path: Path) -> list[float]:
    """Return the lowest ratio of each of the three, in decibels; nan without float inputs."""
    ends = open_model(convert(path))
    ratios = []
    for seed in range(_SAMPLES):
        # The states of a network are those of its first run.
        default, again, plain = (
            open_interpreter(path, kernels)
            for kernels in (FASTEST_KERNELS, FASTEST_KERNELS, PLAIN_KERNELS)
        )
        inputs = draw_inputs(default, seed)
        moved = [_move_numbers(x, seed) for x in inputs]
        signal = run_litert(default, inputs)
        feeds = store_inputs(ends.inputs, inputs, default.get_input_details()) | ends.session.state
        results = (
            restore_layouts(ends.outputs, run_onnx(ends.session, feeds)),
            run_litert(plain, inputs),
            run_litert(again, moved) if any(x.dtype.kind == "f" for x in inputs) else None,
        )
        ratios.append([np.nan if r is None else _find_lowest_ratio(signal, r) for r in results])
    return np.min(ratios, axis=0).tolist()


def _find_lowest_ratio(signal: list[Array], result: list[Array]) -> float:
    """Return the lowest signal-to-noise ratio of the outputs, in decibels; inf if all are equal."""
    return min(compare("", *pair).decibels for pair in zip(signal, result, strict=True))


def _move_numbers(array: Array, seed: int) -> Array:
    """Return floats that differ at random, by up to a millionth of themselves."""
    if array.dtype.kind != "f":
        return array
    factors = np.random.default_rng(seed).uniform(1 - _MOVE, 1 + _MOVE, array.shape)
    return np.asarray((array * factors).astype(array.dtype))


def _format_decibels(ratio: float) -> str:
    if np.isnan(ratio):
        return "-"
    return "equal" if np.isinf(ratio) and ratio > 0 else f"{ratio:.0f}"


if __name__ == "__main__":
    print_table(_COLUMNS, describe, sys.argv[1:])
