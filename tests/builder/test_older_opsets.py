"""builder/older_opsets.py: the forms that nodes have before opset 13."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from tests.support import check, run_onnx
from tests.support.graph_text import make_model
from tests.support.small import network
from tflite2onnx import convert
from tflite2onnx.builder.builder import Body, Value
from tflite2onnx.builder.nodes import NeedsOpset, Node
from tflite2onnx.builder.older_opsets import lower_nodes
from tflite2onnx.errors import OptionError
from tflite2onnx.tensor import DType

IMAGE = "inputs x: float32[1,6,8,4]\ny: float32[{}] = {}\nreturn y"
# Operators by the first opset that has their nodes: the shape of the output, and the call.
OPERATORS = {
    "RELU6(x)": (9, "1,6,8,4"),
    "SQUEEZE(x, squeeze_dims=[0])": (9, "6,8,4"),
    "EXPAND_DIMS(x, 2)": (9, "1,6,1,8,4"),
    "SUM(x, [1, 2])": (9, "1,4"),
    "PAD(x, [[0, 0], [1, 2], [0, 0], [0, 3]])": (9, "1,9,8,7"),
    "SLICE(x, [0, 1, 2, 0], [1, 4, 5, 4])": (9, "1,4,5,4"),
    "STRIDED_SLICE(x, [0, 0, 0, 0], [1, 6, 8, 4], [1, 2, 3, 1])": (10, "1,3,3,4"),
    "REVERSE_V2(x, [2])": (11, "1,6,8,4"),
    "RESIZE_BILINEAR(x, [9, 5], half_pixel_centers=True)": (11, "1,9,5,4"),
    "DEPTH_TO_SPACE(x, block_size=2)": (9, "1,12,16,1"),
    "SPACE_TO_DEPTH(x, block_size=2)": (9, "1,3,4,16"),
    "GATHER(x, [2, 0], axis=3)": (9, "1,6,8,2"),
    "SOFTMAX(x, beta=1.0)": (9, "1,6,8,4"),
    "LOG_SOFTMAX(x)": (9, "1,6,8,4"),
    "MEAN(x, [3], keep_dims=True)": (9, "1,6,8,1"),
    "MAX_POOL_2D(x, padding=SAME, stride_h=2, stride_w=2, filter_height=2, filter_width=2)": (
        9, "1,3,4,4",
    ),
    "ROUND(x)": (11, "1,6,8,4"),
}  # fmt: skip
ONES = Value(np.ones(3, np.int64), DType.INT64)


@pytest.mark.parametrize("call", OPERATORS)
def test_operators_equal_litert_from_their_first_opset(call: str) -> None:
    """Each operator equals LiteRT in the first opset that has its nodes, and not in one before."""
    first, shape = OPERATORS[call]
    model = make_model(IMAGE.format(shape, call))
    for opset in range(first, 13):
        result = check(model, opset=opset)
        assert result.model.opset_import[0].version == opset
        onnx.checker.check_model(result.model)
    if first > 9:
        with pytest.raises(OptionError, match=f"needs opset {first}"):
            convert(model, opset=first - 1)


@pytest.mark.parametrize("code", ["SOFTMAX", "LOG_SOFTMAX"])
def test_softmax_over_an_inner_axis_becomes_several_nodes(code: str) -> None:
    """Softmax of older opsets computes one sum of all later axes."""
    call = f"{code}(x, beta=1.0)" if code == "SOFTMAX" else f"{code}(x)"
    model = make_model(IMAGE.format("1,6,8,4", call))
    layouts = dict.fromkeys("xy", ("NHWC", "NCHW"))
    result: Any = check(model, opset=11, layouts=layouts)
    kinds = {node.op_type for node in result.model.graph.node}
    assert {"ReduceMax", "ReduceSum", "Exp"} < kinds


@pytest.mark.parametrize("kind", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize("axis", range(-3, 3))
def test_softmax_of_older_opsets_equals_that_of_opset_13(kind: str, axis: int) -> None:
    data = np.random.default_rng(0).uniform(-9, 9, (2, 3, 4)).astype(np.float32)
    x, y = Value(), Value()
    node = Node(kind, (x,), (y,), {"axis": axis})
    lowered = lower_nodes([node], 11, {x: (DType.FLOAT32, data.shape)})
    assert (len(lowered) == 1) == (axis in (-1, 2))
    new, old = (
        compute(nodes, {x: data}, y, opset, onnx.TensorProto.FLOAT)
        for nodes, opset in (([node], 13), (lowered, 11))
    )
    np.testing.assert_allclose(old, new, atol=1e-6)


@pytest.mark.parametrize("opset", [9, 11])
def test_operators_of_several_outputs_equal_litert(opset: int) -> None:
    text = """
        inputs x: float32[2,6]
        a: float32[2,3], b: float32[2,3] = SPLIT(1, x, num_splits=2)
        v: float32[2,2], i: int32[2,2] = TOPK_V2(a, 2)
        c: float32[2,5] = FULLY_CONNECTED(b, float32[5,3], none)
        return v, i, c
    """
    check(make_model(text), opset=opset)


def test_network_equals_litert_in_opset_9() -> None:
    assert check(network(), opset=9).model.ir_version >= 4  # initializers that are no inputs


@pytest.mark.parametrize(
    ("text", "opset", "message"),
    [
        ("inputs x: float32[2]\ny: bool[2] = EQUAL(x, [1.0, 2.0])\nreturn y", 10, "Equal .* 11"),
        (IMAGE.format("1,9,5,4", "RESIZE_BILINEAR(x, [9, 5])"), 9, "Resize needs opset 11"),
        ("inputs x: float32[2]\ny: int8(0.5, 3)[2] = QUANTIZE(x)\nreturn y", 9, "Quant.* 10"),
    ],
)
def test_refuses_operators_of_newer_opsets(text: str, opset: int, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        convert(make_model(text), opset=opset)


@pytest.mark.parametrize("code", ["MAXIMUM", "MINIMUM"])
def test_extremes_of_integers_equal_litert_in_opset_9(code: str) -> None:
    check(make_model(f"inputs x: int32[2]\ny: int32[2] = {code}(x, [1, 2])\nreturn y"), opset=9)


def make_node(op_type: str, *inputs: Value | None, **attributes: Any) -> Node:
    return Node(op_type, inputs, (Value(),), attributes)


@pytest.mark.parametrize(
    ("node", "opset", "message"),
    [
        (make_node("Squeeze", Value(), Value()), 11, "Squeeze with computed axes needs opset 13"),
        (make_node("Squeeze", Value(), Value(np.zeros(0))), 11, "with empty axes needs opset 13"),
        (make_node("ReduceMax", Value(), axes=[-1]), 10, "ReduceMax over a negative axis .* 11"),
        (make_node("Gather", Value(), Value(-np.ones(1))), 10, "Gather of negative indices"),
        (make_node("Slice", Value(), ONES, ONES, ONES, Value()), 10, "computed steps .* 11"),
        (make_node("TopK", Value(), ONES, largest=0), 10, "TopK with largest needs opset 11"),
        (make_node("DepthToSpace", Value(), mode="CRD"), 10, "with mode needs opset 11"),
        (make_node("MaxPool", Value(), dilations=[2]), 9, "with dilations needs opset 10"),
        (make_node("Resize", Value(), None, None, ONES), 10, "Resize with 4 inputs .* 11"),
    ],
)
def test_refuses_forms_of_newer_opsets(node: Node, opset: int, message: str) -> None:
    with pytest.raises(NeedsOpset, match=message):
        lower_nodes([node], opset, {})


def test_axes_are_counted_from_the_start() -> None:
    """Negative axes are counted from the start, for values whose rank is known."""
    constant, known = Value(np.ones((2, 3)), DType.FLOAT64), Value()
    nodes = [
        make_node("ReduceMax", constant, axes=[-1]),
        make_node("Concat", known, constant, axis=-1),
        make_node("OneHot", Value(), ONES, ONES, axis=-1),
        make_node("Unsqueeze", known, Value(np.array([-2]), DType.INT64)),
    ]
    lowered = lower_nodes(nodes, 10, {known: (DType.FLOAT32, (1, 2, 3))})
    assert [node.attributes for node in lowered] == [
        {"axes": [1]}, {"axis": 2}, {"axis": -1}, {"axes": [2]},
    ]  # fmt: skip


def test_clip_of_types_but_float32_becomes_max_and_min() -> None:
    """ONNX Runtime's Clip of older opsets takes float32 only."""
    low, high = (Value(np.array(each, np.float64), DType.FLOAT64) for each in (-1, 1))
    clip = make_node("Clip", Value(), low, high)
    for bounds, kinds in (((low, high), ["Max", "Min"]), ((None, high), ["Min"])):
        nodes = lower_nodes([clip._replace(inputs=(clip.inputs[0], *bounds))], 11, {})
        assert [node.op_type for node in nodes] == kinds
        assert nodes[-1].outputs == clip.outputs
    assert lower_nodes([clip], 12, {}) == (clip,)


def test_extremes_of_integers_become_comparisons() -> None:
    """Opset 11 has Max and Min of floats only; the comparisons take 32 bits."""
    x, bound = Value(), Value(np.array(5, np.int32), DType.INT32)
    kinds = {
        DType.INT32: ["Greater", "Where"],
        DType.INT8: ["Cast", "Cast", "Greater", "Where", "Cast"],
    }
    for dtype, expected in kinds.items():
        node = make_node("Max", x, Value(bound.data, dtype))
        lowered = lower_nodes([node], 11, {x: (dtype, (3,))})
        assert [each.op_type for each in lowered] == expected
        assert lowered[-1].outputs == node.outputs
        assert lower_nodes([node], 12, {}) == (node,)


@pytest.mark.parametrize("opset", [11, 12])
@pytest.mark.parametrize("axis", [0, -1])
def test_scales_along_an_axis_give_equal_numbers(axis: int, opset: int) -> None:
    """The nodes compute what QuantizeLinear and DequantizeLinear with an axis do."""
    rng = np.random.default_rng(0)
    data, size = rng.uniform(-9, 9, (3, 4)).astype(np.float32), (3, 4)[axis]
    scale = Value(rng.uniform(0.02, 0.1, size).astype(np.float32), DType.FLOAT32)
    zero = Value(rng.integers(0, 256, size).astype(np.uint8), DType.UINT8)
    x, q, y, signed = Value(), Value(), Value(), Value(np.ones((3, 4), np.int8), DType.INT8)
    nodes = [
        Node("QuantizeLinear", (x, scale, zero), (q,), {"axis": axis}),
        Node("DequantizeLinear", (q, scale, zero), (y,), {"axis": axis}),
        Node("DequantizeLinear", (signed, scale), (Value(),), {"axis": axis}),
    ]
    types = {x: (DType.FLOAT32, (3, 4)), q: (DType.UINT8, (3, 4))}
    lowered = lower_nodes(nodes, opset, types)
    uint8, real = onnx.TensorProto.UINT8, onnx.TensorProto.FLOAT
    found = [
        compute(lowered, {x: data}, node.outputs[0], opset, kind)
        for node, kind in zip(nodes, (uint8, real, real), strict=True)
    ]
    shape = (3, 1) if axis == 0 else (1, 4)
    assert scale.data is not None
    assert zero.data is not None
    scales, zeros = scale.data.reshape(shape), zero.data.reshape(shape).astype(np.float32)
    stored = np.clip(np.rint(data / scales) + zeros, 0, 255).astype(np.uint8)
    for made, expected in zip(found, (stored, (stored - zeros) * scales, 1 * scales), strict=True):
        np.testing.assert_array_equal(made, np.broadcast_to(expected, (3, 4)))


def compute(
    nodes: Sequence[Node], feeds: dict[Value, Any], wanted: Value, opset: int, kind: int
) -> Any:
    """Return a value that nodes compute, by ONNX Runtime."""
    values = dict.fromkeys(v for n in nodes for v in (*n.inputs, *n.outputs))
    names = {value: f"v{i}" for i, value in enumerate(values)}
    constants = [v for v in names if v is not None and v.data is not None]
    graph = helper.make_graph(
        [
            helper.make_node(
                n.op_type,
                [names[v] for v in n.inputs],
                [names[v] for v in n.outputs],
                **n.attributes,
            )
            for n in nodes
        ],
        "g",
        [helper.make_tensor_value_info(names[v], 1, data.shape) for v, data in feeds.items()],
        [helper.make_tensor_value_info(names[wanted], kind, None)],
        [numpy_helper.from_array(v.data, names[v]) for v in constants if v.data is not None],
    )
    imports = [helper.make_opsetid("", opset)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=8)
    (y,) = run_onnx(model, {names[v]: data for v, data in feeds.items()})
    return y


def test_unknown_shapes_need_a_newer_opset() -> None:
    scale = Value(np.ones(2, np.float32), DType.FLOAT32)
    node = make_node("QuantizeLinear", Value(), scale, Value(), axis=0)
    with pytest.raises(NeedsOpset, match="QuantizeLinear with axis needs opset 13"):
        lower_nodes([node], 12, {})


def test_nested_graphs_are_lowered_and_custom_nodes_kept() -> None:
    x, own = Value(), Node("Any", (), (Value(),), {"axis": -1}, "own")
    body = Body(
        "then", (), (make_node("Clip", x, Value(np.zeros(()), DType.FLOAT32), None), own), (), ()
    )
    (node,) = lower_nodes([make_node("If", x, then_branch=body, else_branch=body)], 9, {})
    clip, same = node.attributes["then_branch"].nodes
    assert (clip.inputs, clip.attributes) == ((x,), {"min": 0.0})
    assert same is own


@pytest.mark.parametrize("number", [0.1, np.nan, 0.5])
def test_padding_of_float64_must_be_a_float32_number(number: float) -> None:
    """The number is an attribute before opset 11."""
    pads = Value(np.zeros(2, np.int64), DType.INT64)
    filling = Value(np.array(number, np.float64), DType.FLOAT64)
    node = Node("Pad", (Value(), pads, filling), (Value(),), {"mode": "constant"})
    if number == 0.1:
        with pytest.raises(NeedsOpset, match="Pad with a value of float64"):
            lower_nodes([node], 10, {})
    else:
        assert len(lower_nodes([node], 10, {})) == 1
