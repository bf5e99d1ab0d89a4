"""Nodes as ONNX Runtime computes them fastest, where its kernels or optimizer need other ones."""

from collections import Counter
from collections.abc import Iterator, Sequence
from math import nan

import numpy as np

from tflite2onnx.builder.adaptive_weights import add_adaptive_weights
from tflite2onnx.builder.builder import Builder, eliminate_dead_nodes
from tflite2onnx.builder.nodes import Node, Value
from tflite2onnx.builder.rewrites import find_static_shape
from tflite2onnx.builder.store_once import assemble_constants, share_transposed
from tflite2onnx.emit import Rewritten
from tflite2onnx.targets.onnxruntime.nodes.choices import fill_branches
from tflite2onnx.targets.onnxruntime.nodes.join_rows import join_rows
from tflite2onnx.targets.onnxruntime.nodes.split_transposes import split_transposes
from tflite2onnx.targets.onnxruntime.nodes.wide_blocks import widen_blocks
from tflite2onnx.tensor import DType, Shape

_NORMALIZING = ("LogSoftmax", "Softmax")
_STEPS = 128  # of tanh from 0 to 1, in TFLite
_BYTES = (DType.INT8, DType.UINT8)


def rewrite_nodes(g: Builder, nodes: Sequence[Node], results: Sequence[Value]) -> Rewritten:
    """Return the nodes of the main graph, and the values whose channels depend on the processor."""
    rows = join_rows(g, _keep_softmax_rows(g, _keep_sums(g, nodes)), results)
    split = split_transposes(g, _join_tanh(g, rows, results))
    live = eliminate_dead_nodes(split, results)
    chosen, moved = fill_branches(g, live, results)
    wide, widened = widen_blocks(g, add_adaptive_weights(g, chosen), results)
    made = assemble_constants(g, share_transposed(wide, g.kept))
    return Rewritten(made, changed=moved | widened)


def _keep_sums(g: Builder, nodes: Sequence[Node]) -> tuple[Node, ...]:
    """Return nodes with Sum in place of an Add that only LayerNormalization reads.

    ONNX Runtime fuses Add with three axes and LayerNormalization to SkipLayerNormalization
    (skip_layer_norm_fusion.cc), whose loop adds the numbers of a row one after the other
    (skip_layer_norm.cc). It takes 3.4 to 5.6 times as long as Sum and LayerNormalization: 4 of
    128x512 numbers 1.5 ms in place of 0.3 (AMD EPYC, family 25, model 17). Sum is fused with
    convolutions as Add is, and exists for floats only.
    """
    normalized = {node.inputs[0] for node in nodes if node.op_type == "LayerNormalization"}
    if not normalized:
        return tuple(nodes)
    uses = Counter(value for node in nodes for value in node.inputs)
    return tuple(
        node._replace(op_type="Sum")
        if node.op_type == "Add"
        and node.outputs[0] in normalized
        and uses[node.outputs[0]] == 1
        and g.types.get(node.outputs[0], (None,))[0] is DType.FLOAT32
        else node
        for node in nodes
    )


def _keep_softmax_rows(g: Builder, nodes: Sequence[Node]) -> tuple[Node, ...]:
    """Return nodes with a Reshape before and after each Softmax between two Transposes.

    ONNX Runtime moves a Transpose from before Softmax to after it, if it cancels another one there
    (HandleSoftHardMax in onnx_transpose_optimization.cc). The axis is then not the last in memory,
    and the kernel transposes the data element by element: 64x64 pixels of 32 channels between two
    convolutions take 0.9 ms in place of 0.25. A Reshape stops the Transposes. The shapes of the
    Softmax must be static.
    """
    moved = {node.outputs[0] for node in nodes if node.op_type == "Transpose"}
    if not any(
        node.op_type in _NORMALIZING and not moved.isdisjoint(node.inputs) for node in nodes
    ):
        return tuple(nodes)
    moved_again = {node.inputs[0] for node in nodes if node.op_type == "Transpose"}
    uses = Counter(value for node in nodes for value in node.inputs)
    kept: list[Node] = []
    for node in nodes:
        x, y = node.inputs[0] if node.inputs else None, node.outputs[0]
        is_between = x in moved and y in moved_again and uses[y] == 1
        shape = find_static_shape(x, g.types) if is_between else None
        if shape and node.op_type in _NORMALIZING and node.attributes["axis"] == len(shape) - 1:
            kept += _normalize_rows(g, node, x, shape)
        else:
            kept.append(node)
    return tuple(kept)


def _normalize_rows(g: Builder, node: Node, x: Value | None, shape: Shape) -> Iterator[Node]:
    rows, normalized = Value(), Value()
    yield Node("Reshape", (x, g.ints([-1, shape[-1]])), (rows,), {})
    yield Node(node.op_type, (rows,), (normalized,), {"axis": 1})
    yield Node("Reshape", (normalized, g.ints(shape)), node.outputs, {})


def _join_tanh(g: Builder, nodes: Sequence[Node], results: Sequence[Value]) -> tuple[Node, ...]:
    """Return nodes with Sigmoid in place of Tanh between integers of 8 bits.

    ONNX Runtime joins DequantizeLinear, Sigmoid and QuantizeLinear to one node of integers, but not
    those around Tanh. tanh(x) is 2 sigmoid(2x) - 1, so that the integers of tanh in steps of 1/128
    are those of sigmoid(2x) in steps of 1/256. The results are equal.
    """
    # Symmetric integers have no zero points.
    if g.plan.symmetric or not any(node.op_type == "Tanh" for node in nodes):
        return tuple(nodes)
    makers: dict[Value | None, Node] = {
        node.outputs[0]: node for node in nodes if node.op_type == "DequantizeLinear"
    }
    readers = {node.inputs[0]: node for node in nodes if node.op_type == "QuantizeLinear"}
    uses = Counter([value for node in nodes for value in node.inputs] + [*results])
    changed: list[Node] = []
    stored: dict[Value, Node] = {}  # the QuantizeLinear of sigmoids, by output
    for node in nodes:
        y = node.outputs[0]
        before, after = makers.get(node.inputs[0]) if node.inputs[:1] else None, readers.get(y)
        sigmoid = None
        if node.op_type == "Tanh" and before and after and uses[y] == 1:
            sigmoid = _store_sigmoid(g, before, after)
        if sigmoid is None or before is None:
            changed.append(stored.get(y, node))
            continue
        stored[sigmoid.outputs[0]] = sigmoid
        x, scale, *zero = before.inputs
        twice, real = g.scalar(2 * _read_number(scale), DType.FLOAT32), Value()
        changed += [
            before._replace(inputs=(x, twice, *zero), outputs=(real,)),
            node._replace(op_type="Sigmoid", inputs=(real,)),
        ]
    return tuple(changed)


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
