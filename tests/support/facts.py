"""The facts of the TFLite schema and of LiteRT's registrations, as tables."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, TypeAlias

import ml_dtypes
import numpy as np
from ai_edge_litert import schema_py_generated as schema

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import DTypeLike

# An object of the schema (a ModelT, a TensorT, ...); the generated code has no types.
Table: TypeAlias = Any

Option: TypeAlias = "bool | int | float | str | bytes | Sequence[float] | Sequence[str]"


def _members(enumeration: type) -> dict[str, int]:
    members = vars(enumeration).items()  # and __firstlineno__, from Python 3.13 on
    return {name: code for name, code in members if isinstance(code, int) and name[0] != "_"}


OPERATORS = _members(schema.BuiltinOperator)

# Tensor types by name, in lower case: NumPy's name if NumPy has the type.
TENSOR_TYPES = {name.lower(): code for name, code in _members(schema.TensorType).items()}

# The NumPy type of an element. int4, uint4 and int2 have none: arrays hold one value per byte.
_CARRIERS = {
    "string": np.dtype(object),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float8_e4m3fn": np.dtype(ml_dtypes.float8_e4m3fn),
    "float8_e5m2": np.dtype(ml_dtypes.float8_e5m2),
    "int4": np.dtype(np.int8),
    "int2": np.dtype(np.int8),
    "uint4": np.dtype(np.uint8),
}

# Options tables shared by several operators, or with another name than their operator.
_OPTIONS_OF = {
    "AVERAGE_POOL_2D": "Pool2DOptions",
    "CONV_3D_TRANSPOSE": "Conv3DOptions",
    "L2_NORMALIZATION": "L2NormOptions",
    "L2_POOL_2D": "Pool2DOptions",
    "MAXIMUM": "MaximumMinimumOptions",
    "MAX_POOL_2D": "Pool2DOptions",
    "MEAN": "ReducerOptions",
    "MINIMUM": "MaximumMinimumOptions",
    "MULTINOMIAL": "RandomOptions",
    "RANDOM_STANDARD_NORMAL": "RandomOptions",
    "RANDOM_UNIFORM": "RandomOptions",
    "REDUCE_ALL": "ReducerOptions",
    "REDUCE_ANY": "ReducerOptions",
    "REDUCE_MAX": "ReducerOptions",
    "REDUCE_MIN": "ReducerOptions",
    "REDUCE_PROD": "ReducerOptions",
    "SUM": "ReducerOptions",
    "UNIDIRECTIONAL_SEQUENCE_RNN": "SequenceRNNOptions",
}

_ENUMERATIONS = {
    "algorithm": schema.RngAlgorithm,
    "combiner": schema.CombinerType,
    "compare_type": schema.StablehloComparisonType,
    "comparison_direction": schema.StablehloComparisonDirection,
    "fused_activation_function": schema.ActivationFunctionType,
    "idx_out_type": schema.TensorType,
    "in_data_type": schema.TensorType,
    "kernel_type": schema.LSTMKernelType,
    "key_dtype": schema.TensorType,
    "mode": schema.MirrorPadMode,
    "out_data_type": schema.TensorType,
    "out_type": schema.TensorType,
    "output_type": schema.TensorType,
    "padding": schema.Padding,
    "precision_config": schema.StablehloPrecisionConfig,
    "quantized_bias_type": schema.TensorType,
    "reduce_function": schema.ReduceWindowFunction,
    "type": schema.LSHProjectionType,
    "value_dtype": schema.TensorType,
    "weights_format": schema.FullyConnectedOptionsWeightsFormat,
}

# Operators whose data is not their first input; the type of an output is that of the data.
DATA_INPUT = {
    "EMBEDDING_LOOKUP": 1,
    "EMBEDDING_LOOKUP_SPARSE": 4,
    "FILL": 1,
    "HASHTABLE_FIND": 2,
    "HASHTABLE_LOOKUP": 2,
    "IF": 1,
    "ONE_HOT": 2,
    "SCATTER_ND": 1,
    "SELECT": 1,
    "SELECT_V2": 1,
    "SPARSE_TO_DENSE": 2,
    "SPLIT": 1,
    "TRANSPOSE_CONV": 2,
}

# The newest version that LiteRT's BuiltinOpResolver registers; an operator not named here has
# version 1. Kernels ignore the number, so the newest accepts every type an operator can take.
_VERSIONS = {
    14: "FULLY_CONNECTED",
    9: "CAST DEQUANTIZE TRANSPOSE",
    8: "CONV_2D GATHER MUL SLICE STRIDED_SLICE",
    7: "CONCATENATION DEPTHWISE_CONV_2D",
    6: "ADD DYNAMIC_UPDATE_SLICE GATHER_ND PAD PADV2 QUANTIZE UNPACK",
    5: "ABS EMBEDDING_LOOKUP EQUAL FILL PACK SPLIT SUB TRANSPOSE_CONV",
    4: "BATCH_MATMUL BATCH_TO_SPACE_ND BROADCAST_TO LSTM MAXIMUM MINIMUM NOT_EQUAL RESIZE_BILINEAR"
    " RESIZE_NEAREST_NEIGHBOR REVERSE_V2 SELECT SOFTMAX SPACE_TO_BATCH_ND SVDF"
    " UNIDIRECTIONAL_SEQUENCE_LSTM",
    3: "ARG_MAX ARG_MIN AVERAGE_POOL_2D BIDIRECTIONAL_SEQUENCE_LSTM BIDIRECTIONAL_SEQUENCE_RNN"
    " FLOOR_DIV GELU GREATER_EQUAL LESS LOGISTIC MAX_POOL_2D MEAN MIRROR_PAD REDUCE_MAX REDUCE_MIN"
    " RELU RELU6 RNN RSQRT SPARSE_TO_DENSE SPLIT_V TANH TILE TOPK_V2 UNIDIRECTIONAL_SEQUENCE_RNN",
    2: "COS DEPTH_TO_SPACE DIV EXP FAKE_QUANT FLOOR_MOD GREATER L2_NORMALIZATION LEAKY_RELU"
    " LESS_EQUAL LOG LOG_SOFTMAX RANGE REDUCE_PROD SELECT_V2 SIGN SIN SPACE_TO_DEPTH SQRT"
    " SQUARED_DIFFERENCE SQUEEZE SUM WHERE",
}
VERSIONS = {name: version for version, names in _VERSIONS.items() for name in names.split()}


def type_name(dtype: DTypeLike | str) -> str:
    """The name in TENSOR_TYPES of a NumPy type, or of a name such as "int4"."""
    if isinstance(dtype, str) and dtype in TENSOR_TYPES:
        return dtype
    kind = np.dtype(dtype)
    return "string" if kind.kind in "OSU" else kind.name


def carrier(dtype: str) -> np.dtype[Any]:
    """The NumPy type of arrays that hold elements of this tensor type."""
    return _CARRIERS.get(dtype) or np.dtype(dtype)


def _snake_case(name: str) -> str:
    return re.sub(r"[A-Z]", lambda letter: f"_{letter[0].lower()}", name)


def _options_tables() -> dict[str, tuple[str, int, int]]:
    """Operator -> its options table, the union (1 or 2) that holds it, and its number there."""
    tables = {
        name: (union, number)
        for union, enumeration in enumerate((schema.BuiltinOptions, schema.BuiltinOptions2), 1)
        for name, number in _members(enumeration).items()
    }
    by_name = {name.upper(): name for name in tables}
    wanted = {
        code: _OPTIONS_OF.get(code, by_name.get(f"{code.replace('_', '')}OPTIONS"))
        for code in OPERATORS
    }
    return {code: (name, *tables[name]) for code, name in wanted.items() if name}


OPTIONS = _options_tables()


def _resolve_option(field: str, value: Option) -> object:
    if isinstance(value, (bytes, bytearray)):
        return np.frombuffer(value, np.uint8)
    if isinstance(value, (list, tuple, np.ndarray)):
        return [_resolve_option(field, element) for element in value]
    if isinstance(value, str) and field in _ENUMERATIONS:
        members = _members(_ENUMERATIONS[field])
        return members[value] if value in members else members[value.upper()]
    return value.item() if isinstance(value, np.generic) else value


def options_table(code: str, values: Mapping[str, Option]) -> Table:
    """The options of an operator, filled in; None for an operator without any.

    Raises:
        TypeError: an option that this operator does not have.
    """
    table = getattr(schema, f"{OPTIONS[code][0]}T")() if code in OPTIONS else None
    fields = {_snake_case(field): field for field in vars(table)} if table else {}
    for name, value in values.items():
        if name not in fields:
            raise TypeError(f"{code} has no option {name!r}, only: {', '.join(fields) or 'none'}")
        setattr(table, fields[name], _resolve_option(name, value))
    return table
