"""Reference operators in numpy, for operators without a kernel in LiteRT's interpreter.

Each reference follows its kernel, element by element where this is clearest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tests.support import difference
from tests.support.layouts import random_planner
from tests.support.runtimes import session
from tflite2onnx import Stateful
from tflite2onnx.layout import plan
from tflite2onnx.options import ConversionOptions
from tflite2onnx.reader.model import read_model
from tflite2onnx.stages import convert_model

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.support import Build
    from tests.support.runtimes import Array
    from tflite2onnx import Result


def check_reference(
    m: Build,
    inputs: Sequence[Array],
    want: Sequence[Array],
    *,
    tolerance: float = 1e-5,
    steps: int = 0,
    **options: Any,
) -> Result:
    """Compare ONNX Runtime with a reference; return the conversion.

    As in `check`, layouts are planned and random, and optimizations are enabled and disabled.
    """
    return check_reference_runs(m, [(inputs, want)], tolerance=tolerance, steps=steps, **options)


def check_reference_runs(
    m: Build,
    runs: Sequence[tuple[Sequence[Array], Sequence[Array | None]]],
    *,
    tolerance: float = 1e-5,
    steps: int = 0,
    **options: Any,
) -> Result:
    """Compare ONNX Runtime with a reference over several runs; see `check_reference`.

    A model with state continues from its last run. Outputs that are None are not compared.
    """
    for planner in (random_planner(0), random_planner(1), plan):
        result = convert_model(read_model(m.bytes()), ConversionOptions(**options), planner=planner)
        for optimize in (True, False):
            live = Stateful(session(result.model, optimize=optimize))
            for number, (inputs, want) in enumerate(runs):
                feeds = {
                    end.name: np.array(each.transpose(end.order), order="C")
                    for end, each in zip(result.inputs, inputs, strict=True)
                }
                for end, a, b in zip(result.outputs, want, live.run(None, feeds), strict=True):
                    back = b.transpose(tuple(np.argsort(end.order)))
                    wrong = (
                        "" if a is None else difference(a, back, tolerance=tolerance, steps=steps)
                    )
                    assert not wrong, f"run {number}, {end.name}, optimize={optimize}: {wrong}"
    return result


def draw_numbers(*shape: int, seed: int = 0, low: float = -1, high: float = 1) -> Array:
    """Return random float32 numbers."""
    return np.random.default_rng(seed).uniform(low, high, shape).astype(np.float32)
