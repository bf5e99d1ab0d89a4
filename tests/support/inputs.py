"""Random inputs for a TFLite model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from tests.support.facts import TENSOR_TYPES, carrier

if TYPE_CHECKING:
    from tests.support.runtimes import Array

_NAMES = {code: name for name, code in TENSOR_TYPES.items()}
_LETTERS = np.array(list("abcdefghij"), object)

# Types that are rarely quantized have small values, so that products do not overflow.
_INTEGERS = {
    "int2": (-2, 1),
    "int4": (-8, 7),
    "uint4": (0, 15),
    "int32": (-100, 100),
    "int64": (-100, 100),
    "uint32": (0, 100),
    "uint64": (0, 100),
}
# Beyond the bounds of RELU6 and HARD_SWISH, with moderate values of exp().
_FLOATS = (-8.0, 8.0)


def _default_range(dtype: str) -> tuple[float, float]:
    kind = carrier(dtype)
    if kind.kind not in "iu":
        return _FLOATS
    limits = np.iinfo(kind)
    return _INTEGERS.get(dtype, (limits.min, limits.max))


def _random(
    generator: np.random.Generator,
    dtype: str,
    shape: tuple[int, ...],
    within: tuple[float, float],
) -> Array:
    kind: np.dtype[Any] = carrier(dtype)
    if dtype == "string":
        return generator.choice(_LETTERS, shape)
    if dtype == "bool":
        return generator.integers(0, 1, shape, bool, endpoint=True)
    if kind.kind in "iu":
        low, high = map(int, within)
        return generator.integers(low, high, shape, kind, endpoint=True)
    values = generator.uniform(*within, shape)
    return values.astype(kind)


def random_inputs(data: bytes, seed: int, **ranges: tuple[float, float]) -> list[Array]:
    """An array for each input of the primary sub-graph, of the shape in the file.

    `ranges` are (low, high), both inclusive, by the name of an input or of a tensor type:
    `float32=(0, 1), tensor_3=(0, 4)`. By default floats lie within 8, int32 and int64 within 100,
    uint32 and uint64 from 0 to 100; narrower integers take every value of their type.
    """
    generator = np.random.default_rng(seed)
    graph = schema.Model.GetRootAs(data).Subgraphs(0)
    arrays = []
    for position in range(graph.InputsLength()):
        tensor = graph.Tensors(graph.Inputs(position))
        dtype = _NAMES[tensor.Type()]
        name = (tensor.Name() or b"").decode()
        within = ranges.get(name) or ranges.get(dtype) or _default_range(dtype)
        shape = tuple(tensor.Shape(axis) for axis in range(tensor.ShapeLength()))
        arrays.append(np.asarray(_random(generator, dtype, shape, within)))
    return arrays
