"""Helpers shared by the tests of the reader: typed arrays, and small files after reading."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.support import Build
from tflite2onnx.reader.model import read_model

if TYPE_CHECKING:
    from tflite2onnx.graph import Op
    from tflite2onnx.tensor import Tensor

float32 = partial(np.array, dtype=np.float32)
int8, uint8, int32, int64 = (partial(np.array, dtype=t) for t in ("i1", "u1", "i4", "i8"))


def absolute(*, name: str = "x") -> Build:
    """Return a model of one ABS: x -> y."""
    m = Build()
    m.output(*m.op("ABS", [m.input([2, 3], name=name)], [m.tensor([2, 3], name="y")]))
    return m


def constant(values: Any, **fields: Any) -> Tensor:
    """Return a constant in the form that the reader returns."""
    m = Build()
    tensor = m.constant(values, **fields)
    m.output(tensor)
    return read_model(m.bytes()).graphs[0].tensors[tensor.index]


def only_op(m: Build) -> Op:
    """Return the only operator of a model."""
    (op,) = read_model(m.bytes()).graphs[0].ops
    return op
