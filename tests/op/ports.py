"""Inputs and outputs of every element type; types that NumPy lacks are cast from and to float32."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.support import Build, check, difference, run_onnx
from tflite2onnx.convert import convert
from tflite2onnx.errors import ConversionError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.support import Tensor

_BY_CAST = {"bfloat16", "int4"}
FLOAT8 = ("float8_e4m3fn", "float8_e5m2")
Array = np.ndarray[Any, Any]


def add_input(m: Build, shape: Sequence[int], dtype: str = "float32", **fields: Any) -> Tensor:
    """Return a new input of the model."""
    if dtype not in _BY_CAST:
        return m.input(shape, dtype=dtype, **fields)
    return m.op("CAST", [m.input(shape, **fields)], [shape], dtype=dtype)[0]


def add_outputs(m: Build, *tensors: Tensor) -> None:
    """Make tensors further outputs of the model."""
    for tensor in tensors:
        by_cast = tensor.dtype in _BY_CAST
        made = m.op("CAST", [tensor], [tensor.shape], dtype="float32") if by_cast else [tensor]
        m.output(*made)


def check_outputs(m: Build, *outputs: Tensor, **options: Any) -> Any:
    """Make tensors the outputs, and compare ONNX Runtime with LiteRT."""
    add_outputs(m, *outputs)
    options.setdefault("seeds", [0])
    options.setdefault("ranges", {"float32": (-8, 7)})
    return check(m.bytes(), **options)


def refusal_reason(m: Build, *outputs: Tensor) -> str:
    """Return the message of the error for a model that cannot be converted."""
    m.output(*outputs)
    with pytest.raises(ConversionError) as caught:
        convert(m.bytes())
    return str(caught.value)


def folds(m: Build, *outputs: Tensor) -> None:
    """Check that operators on constants are folded, and compare the results with LiteRT."""
    result = check_outputs(m, *outputs, inputs=[])
    assert {node.op_type for node in result.model.graph.node} <= {"Identity"}


def check_float8(m: Build, expected: Callable[[Array], Array]) -> None:
    """Compare the output for all 256 elements of an 8-bit float type, as an input of [16, 16].

    Neither LiteRT's interpreter nor ONNX Runtime has arrays of these types: `expected` is the
    reference, and the model gets a Cast before and after it.
    """
    model = convert(m.bytes()).model
    (x,), (y,) = model.graph.input, model.graph.output
    kind = x.type.tensor_type.elem_type
    dtype = {TensorProto.FLOAT8E4M3FN: ml_dtypes.float8_e4m3fn}.get(kind, ml_dtypes.float8_e5m2)
    model.graph.node.insert(0, helper.make_node("Cast", ["x"], [x.name], to=kind, saturate=0))
    model.graph.node.append(helper.make_node("Cast", [y.name], ["y"], to=TensorProto.FLOAT))
    for port, name in ((x, "x"), (y, "y")):
        port.name, port.type.tensor_type.elem_type = name, TensorProto.FLOAT
    every = np.arange(256, dtype=np.uint8).reshape(16, 16).view(dtype).astype(np.float32)
    for optimize in (True, False):
        (made,) = run_onnx(model, {"x": every}, optimize=optimize)
        assert difference(expected(every), made, tolerance=0) == ""
