"""A tensor of a test model: its type, quantization and position."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, TypedDict

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from tests.support import facts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, DTypeLike

Shape: TypeAlias = "Sequence[int | None]"

# Numbers of whole bytes, and bool.
NUMBER_TYPES = (
    *("float32", "float16", "float64", "bfloat16", "bool", "int8", "int16", "int32", "int64"),
    *("uint8", "uint16", "uint32", "uint64"),
)


class TensorFields(TypedDict, total=False):
    """Optional fields of a tensor besides its shape.

    dtype: a NumPy type, or a name of the schema in lower case ("int4", "bfloat16", "string").
    scale, zero_point: one number, or one per slice along `axis`; zero_point is 0 by default.
    axis: the quantized dimension, 0 by default.
    quantization: a QuantizationParametersT, if scale, zero_point and axis are not enough.
    shape_signature: as `shape`, with -1 for a dynamic size (or None in `shape`).
    sparsity: a SparsityParametersT, see `sparsify`.
    variable: state that lasts from one inference to the next.
    name: "tensor_<index>" by default.
    """

    dtype: DTypeLike | str
    scale: ArrayLike | None
    zero_point: ArrayLike | None
    axis: int
    quantization: facts.Table
    shape_signature: Sequence[int]
    sparsity: facts.Table
    variable: bool
    name: str


@dataclass(frozen=True)
class Tensor:
    """A tensor of one sub-graph."""

    subgraph: int
    index: int
    shape: tuple[int, ...]
    dtype: str
    quantization: facts.Table


def quantization_of(fields: TensorFields) -> facts.Table:
    """The QuantizationParametersT of a tensor; None if it is not quantized."""
    scale = fields.get("scale")
    if scale is None:
        return fields.get("quantization")
    scales = np.atleast_1d(np.asarray(scale, np.float32))
    zero_point = fields.get("zero_point")
    zeros = np.asarray(0 if zero_point is None else zero_point, np.int64)
    return schema.QuantizationParametersT(
        scale=scales,
        zeroPoint=np.array(np.broadcast_to(zeros, scales.shape)),
        quantizedDimension=fields.get("axis", 0),
    )


def type_of(values: ArrayLike) -> str:
    """The tensor type of an array; for Python numbers float32 and int32, as is usual in TFLite."""
    own = facts.type_name(np.asarray(values).dtype)
    usual = {} if hasattr(values, "dtype") else {"float64": "float32", "int64": "int32"}
    return usual.get(own, own)


def output_fields(
    data: Tensor | None,
    dtype: DTypeLike | str | None = None,
    scale: ArrayLike | None = None,
    zero_point: ArrayLike | None = None,
) -> TensorFields:
    """The fields of an output that is given only as a shape."""
    own = facts.type_name(dtype) if dtype is not None else data.dtype if data else "float32"
    if scale is not None or data is None or data.dtype != own or data.quantization is None:
        return {"dtype": own, "scale": scale, "zero_point": zero_point}
    scales = data.quantization.scale
    # A per-axis quantization does not carry over to the output: the test has to specify it.
    inherited = data.quantization if scales is not None and len(scales) == 1 else None
    return {"dtype": own, "quantization": inherited}
