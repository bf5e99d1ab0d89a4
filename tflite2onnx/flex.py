"""Flex operators: those of TensorFlow, which TFLite runs by a delegate. TFLite to TFLite, first.

A converter falls back on them for what TFLite lacks, but as often for a type, a rank or a missing
pattern; then TFLite has an operator that means the same, and takes its place here. The rest stay
custom operators, with their NodeDef's attributes as options, to be converted like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tflite2onnx import flexbuffer, nodedef
from tflite2onnx.errors import OperatorError, guarded
from tflite2onnx.graph import Graph, Model, Op, Options
from tflite2onnx.tensor import DType, Tensor

_PREFIX = "Flex"
# Operators that were custom ones before they were TFLite's own: files of 2021 have them. None had
# options but for the seeds of the random ones, which no kernel looked at.
_BEFORE = {
    "Atan2": "ATAN2", "Sign": "SIGN", "Multinomial": "MULTINOMIAL",
    "RandomStandardNormal": "RANDOM_STANDARD_NORMAL", "RandomUniform": "RANDOM_UNIFORM",
}  # fmt: skip


def translated(model: Model, stays: Callable[[Op], bool]) -> Model:
    """Return a model in which operators of TFLite's stand for those that mean the same.

    `stays` names operators that somebody else converts.
    """
    if not any(_is_foreign(op) for graph in model.graphs for op in graph.ops):
        return model
    return model._replace(graphs=tuple(_translated(graph, stays) for graph in model.graphs))


def _is_foreign(op: Op) -> bool:
    return op.custom and (op.code.startswith(_PREFIX) or op.code in _BEFORE)


def _translated(graph: Graph, stays: Callable[[Op], bool]) -> Graph:
    ops: list[Op] = []
    for op in graph.ops:
        if not _is_foreign(op):
            ops.append(op)
            continue
        if op.code in _BEFORE:
            new = replace(op, code=_BEFORE[op.code], custom=False, options=Options())
            ops.append(op if stays(op) else new)
            continue
        known = replace(op, options=Options(_attributes(op)))
        rule = _RULES.get(op.code.removeprefix(_PREFIX))
        ops += (None if rule is None or stays(op) else _ruled(rule, known)) or [known]
    return replace(graph, ops=tuple(ops))


def _ruled(rule: _Rule, op: Op) -> Sequence[Op] | None:
    """Return the operators that stand for one, None if there are no such or it makes no sense."""
    try:
        with guarded():
            return rule(op)
    except OperatorError:
        return None


def _attributes(op: Op) -> Mapping[str, Any]:
    """Return the attributes of the NodeDef, none if there is no such thing."""
    try:
        options = flexbuffer.decode(op.custom_options)
        _, raw = options
        return nodedef.decode(raw.encode() if isinstance(raw, str) else raw).attributes
    except (TypeError, ValueError, AttributeError):
        return {}


# A rule returns the operators that stand for one, None if there are no such.
_Rule = Callable[[Op], Sequence[Op] | None]


@dataclass(frozen=True)
class _Same:
    """The same operator under a name of TFLite's.

    Attributes:
        code: TFLite's name, of a builtin operator unless it is `custom`.
        options: TFLite's option for each attribute of TensorFlow's that counts.
        needs: attributes that have to be these, where they are given at all.
        inputs: how many inputs both have; any number if None.
    """

    code: str
    options: Mapping[str, str] | None = None
    needs: Mapping[str, Any] | None = None
    fixed: Mapping[str, Any] | None = None
    inputs: int | None = None
    custom: bool = False

    def __call__(self, op: Op) -> Sequence[Op] | None:
        given = op.options
        if any(given.get(name, value) != value for name, value in (self.needs or {}).items()):
            return None
        if self.inputs is not None and len(op.inputs) != self.inputs:
            return None
        options = {
            ours: given[name] for name, ours in (self.options or {}).items() if name in given
        }
        fixed = {"fused_activation_function": "NONE", **(self.fixed or {})}
        return [
            replace(
                op, code=self.code, custom=self.custom, options=Options({**fixed, **options})
            )
        ]  # fmt: skip


def _of_axis_input(code: str, place: int, option: str = "axis") -> _Rule:
    """Return a rule for an operator whose axis is an input, and in TFLite an option."""

    def rule(op: Op) -> Sequence[Op] | None:
        axis = op.inputs[place] if -len(op.inputs) <= place < len(op.inputs) else None
        if axis is None or axis.data is None or axis.data.size != 1:
            return None
        inputs = [t for i, t in enumerate(op.inputs) if i != place % len(op.inputs)]
        options = {
            "fused_activation_function": "NONE", option: int(axis.data.reshape(-1)[0]),
            "batch_dims": op.options.get("batch_dims", 0),
        }  # fmt: skip
        new = replace(op, code=code, custom=False, inputs=tuple(inputs), options=Options(options))
        return [new]

    return rule


def _conv_2d(op: Op) -> Sequence[Op] | None:
    """Conv2D and DepthwiseConv2dNative: the weights' axes stand in another order."""
    window = _window(op)
    weights = op.inputs[1] if len(op.inputs) == 2 else None
    if window is None or weights is None or weights.rank != 4:
        return None
    height, width, channels, filters = weights.shape
    if op.code.endswith("Native"):
        shape = (1, height, width, channels * filters)
        how = _constant(f"{weights.name}/shape", shape)
        turned, turn = _op(op, "RESHAPE", weights, how, shape, {"new_shape": shape})
        code = "DEPTHWISE_CONV_2D"
    else:
        shape = (filters, height, width, channels)
        how = _constant(f"{weights.name}/order", (3, 0, 1, 2))
        turned, turn = _op(op, "TRANSPOSE", weights, how, shape, {})
        code = "CONV_2D"
    inputs = op.inputs[0], turned
    return [turn, replace(op, code=code, custom=False, inputs=inputs, options=Options(window))]


def _window(op: Op) -> Mapping[str, Any] | None:
    """Return the options of a convolution or pool over images, None if TFLite has none such."""
    given = op.options
    strides, dilations = (given.get(name, [1, 1, 1, 1]) for name in ("strides", "dilations"))
    plain = given.get("data_format", "NHWC") == "NHWC" and given.get("padding") != "EXPLICIT"
    if not plain or any(
        len(each) != 4 or each[0] != 1 or each[3] != 1
        for each in (strides, dilations)
    ):
        return None
    return {
        "fused_activation_function": "NONE", "padding": given.get("padding"),
        "stride_h": strides[1], "stride_w": strides[2],
        "dilation_h_factor": dilations[1], "dilation_w_factor": dilations[2],
    }  # fmt: skip


def _conv_3d(op: Op) -> Sequence[Op] | None:
    given, axes = op.options, "dhw"
    strides, dilations = (given.get(name, [1] * 5) for name in ("strides", "dilations"))
    if given.get("data_format", "NDHWC") != "NDHWC" or len(op.inputs) != 2:
        return None
    if any(len(each) != 5 or each[0] != 1 or each[4] != 1 for each in (strides, dilations)):
        return None
    options = {
        "fused_activation_function": "NONE", "padding": given.get("padding"),
        **{f"stride_{a}": n for a, n in zip(axes, strides[1:4], strict=True)},
        **{f"dilation_{a}_factor": n for a, n in zip(axes, dilations[1:4], strict=True)},
    }  # fmt: skip
    return [replace(op, code="CONV_3D", custom=False, options=Options(options))]


def _pool_2d(op: Op) -> Sequence[Op] | None:
    window, kernel = _window(op), op.options.get("ksize", [])
    if window is None or len(kernel) != 4 or kernel[0] != 1 or kernel[3] != 1:
        return None
    code = "MAX_POOL_2D" if "Max" in op.code else "AVERAGE_POOL_2D"
    size = {"filter_height": kernel[1], "filter_width": kernel[2]}
    return [replace(op, code=code, custom=False, options=Options({**window, **size}))]


def _bounded(op: Op) -> Sequence[Op] | None:
    """ClipByValue: the smaller of one bound and the larger of the other."""
    if len(op.inputs) != 3 or len(op.outputs) != 1:
        return None
    x, low, high = op.inputs
    if x is None:
        return None
    capped = replace(op.outputs[0], name=f"{op.outputs[0].name}/minimum")
    first = replace(
        op, code="MINIMUM", custom=False, inputs=(x, high), outputs=(capped,), options=Options()
    )
    return [first, replace(first, code="MAXIMUM", inputs=(capped, low), outputs=op.outputs)]


def _constant(name: str, numbers: Sequence[int]) -> Tensor:
    data = np.array(numbers, np.int32)
    return Tensor(name, data.shape, DType.INT32, data)


def _op(
    op: Op, code: str, x: Tensor, how: Tensor, shape: Sequence[int], options: Mapping[str, Any]
) -> tuple[Tensor, Op]:
    """Return a tensor made of another, and the operator that makes it."""
    made = replace(x, name=f"{x.name}/{code.lower()}", shape=tuple(shape), data=None,
                   shape_signature=())  # fmt: skip
    inputs = (x, how)
    return made, Op(code, op.index, inputs, (made,), Options(options))


_KEPT = {"keep_dims": "keep_dims"}
_RULES: Mapping[str, _Rule] = {
    # Shapes
    "Reshape": _Same("RESHAPE", inputs=2),
    "Transpose": _Same("TRANSPOSE"),
    "ExpandDims": _Same("EXPAND_DIMS"),
    "Squeeze": _Same("SQUEEZE", {"squeeze_dims": "squeeze_dims"}),
    "BroadcastTo": _Same("BROADCAST_TO"),
    "Tile": _Same("TILE"),
    "Fill": _Same("FILL"),
    "Range": _Same("RANGE"),
    "Shape": _Same("SHAPE"),
    "Rank": _Same("RANK"),
    "ZerosLike": _Same("ZEROS_LIKE"),
    # Parts
    "Slice": _Same("SLICE"),
    "StridedSlice": _Same(
        "STRIDED_SLICE",
        {
            f"{name}_mask": f"{name}_mask"
            for name in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")
        },
        fixed={
            "offset": False,
            **{
                f"{name}_mask": 0
                for name in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")
            },
        },
    ),
    "Pad": _Same("PAD"),
    "PadV2": _Same("PADV2"),
    "MirrorPad": _Same("MIRROR_PAD", {"mode": "mode"}),
    "ConcatV2": _of_axis_input("CONCATENATION", -1),
    "Pack": _Same("PACK", {"axis": "axis", "N": "values_count"}, fixed={"axis": 0}),
    "Unpack": _Same("UNPACK", {"axis": "axis", "num": "num"}, fixed={"axis": 0}),
    "Split": _Same("SPLIT", {"num_split": "num_splits"}),
    "SplitV": _Same("SPLIT_V", {"num_split": "num_splits"}),
    "GatherV2": _of_axis_input("GATHER", 2),
    "GatherNd": _Same("GATHER_ND"),
    "ScatterNd": _Same("SCATTER_ND"),
    "ReverseV2": _Same("REVERSE_V2"),
    "Roll": _Same("Roll", custom=True),
    "SpaceToDepth": _Same("SPACE_TO_DEPTH", {"block_size": "block_size"},
                          {"data_format": "NHWC"}),
    "DepthToSpace": _Same("DEPTH_TO_SPACE", {"block_size": "block_size"},
                          {"data_format": "NHWC"}),
    "SelectV2": _Same("SELECT_V2"),
    "TopKV2": _Same("TOPK_V2", needs={"sorted": True}),
    "OneHot": _Same("ONE_HOT", {"axis": "axis"}, fixed={"axis": -1}),
    "Cast": _Same("CAST", needs={"Truncate": False}),
    # Numbers
    "Sum": _Same("SUM", _KEPT, fixed={"keep_dims": False}),
    "Mean": _Same("MEAN", _KEPT, fixed={"keep_dims": False}),
    "Max": _Same("REDUCE_MAX", _KEPT, fixed={"keep_dims": False}),
    "Min": _Same("REDUCE_MIN", _KEPT, fixed={"keep_dims": False}),
    "Prod": _Same("REDUCE_PROD", _KEPT, fixed={"keep_dims": False}),
    "All": _Same("REDUCE_ALL", _KEPT, fixed={"keep_dims": False}),
    "Any": _Same("REDUCE_ANY", _KEPT, fixed={"keep_dims": False}),
    "ArgMax": _Same("ARG_MAX"),
    "ArgMin": _Same("ARG_MIN"),
    "Cumsum": _Same("CUMSUM", {"exclusive": "exclusive", "reverse": "reverse"},
                    fixed={"exclusive": False, "reverse": False}),
    "AddN": _Same("ADD_N"),
    "ClipByValue": _bounded,
    "Softmax": _Same("SOFTMAX", fixed={"beta": 1.0}),
    "LogSoftmax": _Same("LOG_SOFTMAX"),
    "LeakyRelu": _Same("LEAKY_RELU", {"alpha": "alpha"}, fixed={"alpha": 0.2}),
    "BatchMatMulV2": _Same("BATCH_MATMUL", {"adj_x": "adj_x", "adj_y": "adj_y"},
                           fixed={"adj_x": False, "adj_y": False,
                                  "asymmetric_quantize_inputs": False}),
    "BatchMatMul": _Same("BATCH_MATMUL", {"adj_x": "adj_x", "adj_y": "adj_y"},
                         fixed={"adj_x": False, "adj_y": False,
                                "asymmetric_quantize_inputs": False}),
    "MatMul": _Same("BATCH_MATMUL", {"transpose_a": "adj_x", "transpose_b": "adj_y"},
                    fixed={"adj_x": False, "adj_y": False,
                           "asymmetric_quantize_inputs": False}),
    "RFFT2D": _Same("RFFT2D"),
    "IRFFT2D": _Same("IRFFT2D", custom=True),
    # Windows
    "Conv2D": _conv_2d,
    "DepthwiseConv2dNative": _conv_2d,
    "Conv3D": _conv_3d,
    "MaxPool": _pool_2d,
    "AvgPool": _pool_2d,
    "MaxPool3D": _Same("MaxPool3D", {name: name for name in ("ksize", "strides", "padding")},
                       {"data_format": "NDHWC"}, custom=True),
    "AvgPool3D": _Same("AvgPool3D", {name: name for name in ("ksize", "strides", "padding")},
                       {"data_format": "NDHWC"}, custom=True),
    "BiasAdd": _Same("ADD", needs={"data_format": "NHWC"}),
}  # fmt: skip
NAMES = frozenset(_RULES)  # of what is translated in some form
