"""Nodes as ONNX Runtime computes them fastest, where its kernels or optimizer need other ones.

`PASSES` has the passes in order, each with the reason for its place.
"""

from collections import Counter
from collections.abc import Sequence
from math import nan

import numpy as np

from tflite2onnx.builder.adaptive_weights import add_adaptive_weights
from tflite2onnx.builder.builder import Builder
from tflite2onnx.builder.node_passes import NodePass, Rewritten, drop_dead_nodes, replace_nodes
from tflite2onnx.builder.nodes import Node, Value
from tflite2onnx.builder.rewrites import find_static_shape
from tflite2onnx.builder.store_once import assemble_constants, share_transposed
from tflite2onnx.targets.onnxruntime.nodes.add_biases import add_biases
from tflite2onnx.targets.onnxruntime.nodes.choices import fill_branches
from tflite2onnx.targets.onnxruntime.nodes.join_rows import join_rows
from tflite2onnx.targets.onnxruntime.nodes.split_transposes import move_one_axis, split_transposes
from tflite2onnx.targets.onnxruntime.nodes.wide_blocks import widen_blocks
from tflite2onnx.tensor import DType

_NORMALIZING = ("LogSoftmax", "Softmax")
_STEPS = 128  # of tanh from 0 to 1, in TFLite
_BYTES = (DType.INT8, DType.UINT8)


def _keep_sums(g: Builder, nodes: Sequence[Node], _: Sequence[Value]) -> Rewritten:
    """Return nodes with Sum in place of an Add that only LayerNormalization reads.

    ONNX Runtime fuses Add with three axes and LayerNormalization to SkipLayerNormalization
    (skip_layer_norm_fusion.cc), whose loop adds the numbers of a row one after the other
    (skip_layer_norm.cc). It takes 3.4 to 5.6 times as long as Sum and LayerNormalization: 4 of
    128x512 numbers 1.5 ms in place of 0.3 (AMD EPYC, family 25, model 17). Sum is fused with
    convolutions as Add is, and exists for floats only.
    """
    normalized = {node.inputs[0] for node in nodes if node.op_type == "LayerNormalization"}
    uses = Counter(value for node in nodes for value in node.inputs)

    def build(node: Node) -> Sequence[Node] | str:
        if node.op_type != "Add" or normalized.isdisjoint(node.outputs):
            return ""
        if uses[node.outputs[0]] > 1:
            return "other nodes read the sum"
        if g.types.get(node.outputs[0], (None,))[0] is not DType.FLOAT32:
            return "Sum is computed of float32 only"
        return [node._replace(op_type="Sum")]

    return replace_nodes(nodes, build)


def _keep_softmax_rows(g: Builder, nodes: Sequence[Node], _: Sequence[Value]) -> Rewritten:
    """Return nodes with a Reshape before and after each Softmax between two Transposes.

    ONNX Runtime moves a Transpose from before Softmax to after it, if it cancels another one there
    (HandleSoftHardMax in onnx_transpose_optimization.cc). The axis is then not the last in memory,
    and the kernel transposes the data element by element: 64x64 pixels of 32 channels between two
    convolutions take 0.9 ms in place of 0.25. A Reshape stops the Transposes. The shapes of the
    Softmax must be static.
    """
    moved = {node.outputs[0] for node in nodes if node.op_type == "Transpose"}
    moved_again = {node.inputs[0] for node in nodes if node.op_type == "Transpose"}
    uses = Counter(value for node in nodes for value in node.inputs)

    def build(node: Node) -> Sequence[Node] | str:
        if node.op_type not in _NORMALIZING or moved.isdisjoint(node.inputs):
            return ""
        (x,), (y,) = node.inputs, node.outputs
        if y not in moved_again or uses[y] > 1:
            return "other nodes than one Transpose read the result"
        shape = find_static_shape(x, g.types)
        if not shape:
            return "the shape is dynamic"
        if node.attributes["axis"] != len(shape) - 1:
            return "the axis is not the last one"
        rows, normalized = Value(), Value()
        return [
            Node("Reshape", (x, g.ints([-1, shape[-1]])), (rows,), {}),
            Node(node.op_type, (rows,), (normalized,), {"axis": 1}),
            Node("Reshape", (normalized, g.ints(shape)), node.outputs, {}),
        ]

    return replace_nodes(nodes, build)


def _join_tanh(g: Builder, nodes: Sequence[Node], results: Sequence[Value]) -> Rewritten:
    """Return nodes with Sigmoid in place of Tanh between integers of 8 bits.

    ONNX Runtime joins DequantizeLinear, Sigmoid and QuantizeLinear to one node of integers, but not
    those around Tanh. tanh(x) is 2 sigmoid(2x) - 1, so that the integers of tanh in steps of 1/128
    are those of sigmoid(2x) in steps of 1/256. The results are equal.
    """
    makers: dict[Value | None, Node] = {
        node.outputs[0]: node for node in nodes if node.op_type == "DequantizeLinear"
    }
    readers = {node.inputs[0]: node for node in nodes if node.op_type == "QuantizeLinear"}
    uses = Counter([value for node in nodes for value in node.inputs] + [*results])
    stored: dict[Value, Node] = {}  # the QuantizeLinear of sigmoids, by output

    def build(node: Node) -> Sequence[Node] | str:
        if node.op_type != "Tanh":
            return [stored[y] for y in node.outputs if y in stored] or ""
        (x,), (y,) = node.inputs, node.outputs
        before, after = makers.get(x), readers.get(y)
        if before is None or after is None or uses[y] > 1:
            return "not between DequantizeLinear and one QuantizeLinear"
        # Symmetric integers have no zero points.
        sigmoid = None if g.plan.symmetric else _store_sigmoid(g, before, after)
        if sigmoid is None:
            return "the integers are not those of a Sigmoid"
        stored[sigmoid.outputs[0]] = sigmoid
        x, scale, *zero = before.inputs
        twice, real = g.scalar(2 * _read_number(scale), DType.FLOAT32), Value()
        return [
            before._replace(inputs=(x, twice, *zero), outputs=(real,)),
            node._replace(op_type="Sigmoid", inputs=(real,)),
        ]

    return replace_nodes(nodes, build)


def _store_sigmoid(g: Builder, before: Node, after: Node) -> Node | None:
    """Return the QuantizeLinear of the sigmoid in place of that of tanh, None if there is none."""
    x, zero = before.inputs[0], after.inputs[2] if len(after.inputs) > 2 else None
    dtype = DType.INT8 if zero and zero.dtype is DType.INT8 else DType.UINT8
    least = -_STEPS if dtype is DType.INT8 else 0
    fits = (
        x is not None
        and (g.types[x][0] if x in g.types else x.dtype) in _BYTES
        and _read_number(before.inputs[1]) > 0
        and _read_number(after.inputs[1]) * _STEPS == 1
        and _read_number(zero) == least + _STEPS
    )
    if not fits:
        return None
    # Zero points of int8 are separate constants, as in `Builder.quantize`.
    constant = g.make_separate_constant if dtype is DType.INT8 else g.constant
    point = constant(np.array(least, dtype.numpy), dtype)
    half_step = g.scalar(0.5 / _STEPS, DType.FLOAT32)
    return after._replace(inputs=(after.inputs[0], half_step, point))


def _read_number(constant: Value | None) -> float:
    """Return the only element of a constant, NaN if there is none."""
    data = None if constant is None else constant.data
    return nan if data is None or data.size != 1 else float(data.item())


PASSES: tuple[NodePass, ...] = (
    # ONNX Runtime fuses Add with LayerNormalization, which is slow.
    _keep_sums,
    # A Softmax that a Transpose passes has its axis not at the end of memory.
    _keep_softmax_rows,
    # Rows of a sequence are multiplied one by one.
    join_rows,
    # Sigmoid has a kernel of 8 bits, Tanh has none.
    _join_tanh,
    # After the pass of Softmax, which looks for one Transpose at each side.
    move_one_axis,
    # Those that move one axis are fast.
    split_transposes,
    # The next pass asks who reads a value.
    drop_dead_nodes,
    # ONNX Runtime runs nodes before an If although only the branch that it removes reads them.
    fill_branches,
    # After branches have the products that they alone need.
    add_biases,
    # Before filters are padded in branches: adaptive weights are read before these.
    add_adaptive_weights,
    # Images of 8 channels fill no block of 16.
    widen_blocks,
    # All nodes that read constants of the file exist now.
    share_transposed,
    # After constants are shared: what nodes make is no constant any more.
    assemble_constants,
)
