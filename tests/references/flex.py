"""Models of one TensorFlow operator, which LiteRT cannot run without TensorFlow.

The references are in numpy, written from TensorFlow's documentation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tests.support import Build
from tests.support.flex import flex_options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.support.runtimes import Array


def build_flex(
    name: str,
    inputs: Sequence[Array],
    made: Sequence[Array],
    constants: Sequence[Array] = (),
    **attributes: Any,
) -> Build:
    """Return a model of one operator whose other operands are constant."""
    m = Build()
    operands = [m.input(x.shape, dtype=_label(x)) for x in inputs]
    outputs = [m.tensor(y.shape, dtype=_label(y)) for y in made]
    options = flex_options(name, **attributes)
    m.output(*m.custom(f"Flex{name}", [*operands, *map(m.constant, constants)], outputs, options))
    return m


def _label(x: Array) -> str:
    return "string" if x.dtype.kind == "O" else x.dtype.name


def random_numbers(dtype: str, *shape: int, seed: int = 0, low: int = -5, high: int = 6) -> Array:
    """Return random numbers of a type; the bounds are integers."""
    generator = np.random.default_rng(seed)
    if dtype == "bool":
        return generator.integers(0, 2, shape).astype(bool)
    if np.dtype(dtype).kind == "f":
        return generator.uniform(low, high, shape).astype(dtype)
    least = max(low, 0) if np.dtype(dtype).kind == "u" else low
    return generator.integers(least, high, shape).astype(dtype)
