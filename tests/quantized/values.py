"""Models of operators on all stored integers of a type, and comparison in every storage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tests.quantized.layers import LIMITS
from tests.support import Build, check, difference, run_onnx, run_tflite
from tflite2onnx.convert import convert
from tflite2onnx.reader.model import read_model

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.support import Converted, Tensor
    from tests.support.tensor import TensorFields
    from tflite2onnx.tensor import Tensor as FileTensor

Array = np.ndarray[Any, Any]
Scale = tuple[float, int]  # a scale and a zero point

# Zero points of two inputs and an output, away from the middle of the type.
ZEROS = {"int8": (3, -5, 7), "uint8": (131, 123, 120), "int16": (0, 0, 0)}
# The scale of a type relative to 8 bits.
FINER = {"int8": 1.0, "uint8": 1.0, "int16": 1 / 256}


def scales(dtype: str, *steps: float) -> list[Scale]:
    """Return quantizations of the inputs and of the output from 8-bit scales."""
    zeros = ZEROS[dtype][:1] if len(steps) == 1 else (*ZEROS[dtype][: len(steps) - 1],)
    zeros = (*zeros, ZEROS[dtype][2])[: len(steps)]
    return [(step * FINER[dtype], zero) for step, zero in zip(steps, zeros, strict=True)]


def all_integers(dtype: str) -> Array:
    """Return all integers of a type in ascending order."""
    low, high = LIMITS[dtype]
    return np.arange(low, high + 1).astype(dtype)


def grid(dtype: str) -> tuple[Array, Array]:
    """Return two inputs that broadcast to all pairs of integers; for int16 to a sample of pairs."""
    if dtype != "int16":
        return all_integers(dtype).reshape(-1, 1), all_integers(dtype).reshape(1, -1)
    generator, (low, high) = np.random.default_rng(0), LIMITS[dtype]
    edges = [low, low + 1, -1, 0, 1, high - 1, high]
    a, b = (np.append(edges, generator.integers(low, high, size)) for size in (190, 204))
    return a.astype(dtype).reshape(-1, 1), b.astype(dtype).reshape(1, -1)


def _fields(dtype: str, scale: Scale | None) -> TensorFields:
    if scale is None:
        return {"dtype": dtype}
    return {"dtype": dtype, "scale": scale[0], "zero_point": scale[1]}


def add_input(m: Build, array: Array, scale: Scale | None) -> Tensor:
    """Add an input for an array of stored integers."""
    return m.input(array.shape, **_fields(array.dtype.name, scale))


def add_constant(m: Build, array: Array, scale: Scale) -> Tensor:
    """Add a constant array of stored integers."""
    return m.constant(array, scale=scale[0], zero_point=scale[1])


def output_tensor(m: Build, shape: Sequence[int], dtype: str, scale: Scale | None = None) -> Tensor:
    """Return a tensor for the output of an operator."""
    return m.tensor(shape, **_fields(dtype, scale))


def unary(
    code: str, x: Array, given: Scale, wanted: Scale, dtype: str = "", **options: Any
) -> bytes:
    """Return a model of an operator whose output has the shape of its input."""
    m = Build()
    y = output_tensor(m, x.shape, dtype or x.dtype.name, wanted)
    m.output(*m.op(code, [add_input(m, x, given)], [y], **options))
    return m.bytes()


def binary(
    code: str,
    pair: tuple[Array, Array],
    given: Sequence[Scale],
    wanted: Scale | None,
    constant: int | None = None,
    **options: Any,
) -> bytes:
    """Return a model of an operator with two inputs that broadcast; one may be constant.

    An output without a scale is bool.
    """
    m = Build()
    xs = [
        (add_constant if i == constant else add_input)(m, *each)
        for i, each in enumerate(zip(pair, given, strict=True))
    ]
    shape = np.broadcast_shapes(*(array.shape for array in pair))
    y = output_tensor(m, shape, pair[0].dtype.name if wanted else "bool", wanted)
    m.output(*m.op(code, xs, [y], **options))
    return m.bytes()


def check_integers(
    data: bytes, inputs: Sequence[Array], steps: int = 0, **options: Any
) -> Converted:
    """Compare a model with LiteRT's integers, for each storage and with float quantization."""
    result = check(data, inputs=inputs, steps=steps, **options)
    if any(array.dtype == np.int8 for array in inputs):
        for activations in ("int8", "uint8"):
            check(
                data,
                inputs=inputs,
                steps=steps,
                optimize=[True],
                random_layouts=(),
                activations=activations,
                **options,
            )
    default_kernels = options.get("default_kernels", False)
    check_float_conversion(data, inputs, steps, default_kernels=default_kernels)
    return result


def check_float_conversion(
    data: bytes, inputs: Sequence[Array], steps: int = 0, *, default_kernels: bool = False
) -> None:
    """Compare a float conversion with LiteRT's integers, within steps and half a step."""
    graph = read_model(data).graphs[0]
    model = convert(data, quantization="float", io_layout="tflite").model
    real = [as_real(a, t) for a, t in zip(inputs, graph.inputs, strict=True)]
    feeds = {port.name: array for port, array in zip(model.graph.input, real, strict=True)}
    wanted = run_tflite(data, inputs, default_kernels=default_kernels)
    for want, have, tensor in zip(wanted, run_onnx(model, feeds), graph.outputs, strict=True):
        if have.dtype == want.dtype:
            assert difference(want, have, steps=steps) == ""
            continue
        low, high = LIMITS[want.dtype.name]
        scale, zero = _scale_of(tensor)
        integers = np.clip(have.astype(np.float64) / scale + zero, low, high)
        # LiteRT's rounding to integers is half a step; float32 adds a small error.
        assert np.abs(integers - want).max(initial=0) <= steps + 0.51


def as_real(array: Array, tensor: FileTensor) -> Array:
    """Return the real numbers of stored integers; other arrays are returned unchanged."""
    if tensor.quantization is None or tensor.dtype.label not in LIMITS:
        return array
    scale, zero = _scale_of(tensor)
    return ((array.astype(np.float64) - zero) * scale).astype(np.float32)


def _scale_of(tensor: FileTensor) -> tuple[float, int]:
    assert tensor.quantization is not None
    return float(tensor.quantization.scale[0]), int(tensor.quantization.zero_point[0])
