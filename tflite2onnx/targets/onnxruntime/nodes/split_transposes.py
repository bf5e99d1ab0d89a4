"""Transposes that move the last axis and others become two fast ones.

ONNX Runtime's kernel (transpose.cc) has a fast loop if one axis moves, and copies blocks if the
last axis stays. Other data are copied element by element, which takes 4 to 6 ns each:

    y = Transpose(x)

    y = Reshape(Transpose(Reshape(Transpose(Reshape(x)))))

Either the first node moves the axis that will be the last one to the end, and the second copies
blocks of this axis, or the first copies blocks of the last axis, and the second moves it. The
larger blocks are faster. `costs.py` has the times: each block takes a memcpy. 64x256x4 numbers with
the first and the last axis exchanged take 79 us in place of 243, 4x256x64 take 60 in place of 270
(AMD EPYC, family 25, model 17).

ONNX Runtime would join two Transposes (onnx_transpose_optimization.cc), also around a Reshape that
only splits, joins or adds axes. So the Reshape between them leaves out an axis of 1, and splits
axes in other factors.

A Transpose by [0, 3, 2, 1] moves two axes, also if the third axis is 1, as after a 1-D convolution.
Without this axis one axis moves: 200x64 floats take 12 us in place of 52 (same processor).
"""

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from math import prod

import numpy as np

from tflite2onnx.builder.builder import Builder, find_readers
from tflite2onnx.builder.node_passes import Rewritten, replace_nodes
from tflite2onnx.builder.nodes import Node, Value
from tflite2onnx.builder.rewrites import find_static_shape
from tflite2onnx.targets.onnxruntime.costs import ANY_GAIN, MOVED, Terms, explain_nodes
from tflite2onnx.tensor import DType, Shape

_FACTORS = range(2, 12)
_FLOAT = 4  # bytes
_SWAPPED = (0, 3, 2, 1)


def move_one_axis(g: Builder, nodes: Sequence[Node], results: Sequence[Value]) -> Rewritten:
    """Return nodes whose Transposes of two axes, of which one is 1, move one axis."""
    return replace_nodes(nodes, partial(_move_axis, g, find_readers(nodes), {*results}))


def split_transposes(g: Builder, nodes: Sequence[Node], _: Sequence[Value]) -> Rewritten:
    """Return nodes with two Transposes in place of each slow one of floats of a static shape."""
    return replace_nodes(nodes, partial(_split, g))


def _move_axis(
    g: Builder, readers: Mapping[Value, Sequence[Node]], results: Collection[Value], node: Node
) -> Sequence[Node] | str:
    """Return a Transpose of one axis in place of one that moves two, of which one is 1."""
    if node.op_type != "Transpose" or tuple(node.attributes["perm"]) != _SWAPPED:
        return ""
    (x,), (y,) = node.present, node.outputs
    dtype, sizes = g.types.get(x, (None, ()))
    first, rows, one, columns = sizes if len(sizes) == len(_SWAPPED) else (0, 0, 0, 0)
    if one != 1 or dtype is not DType.FLOAT32 or isinstance(rows, str) or isinstance(columns, str):
        return ""
    if y not in results and all(_ignores_axes(reader) for reader in readers.get(y, ())):
        g.types[y] = (dtype, (first, 1, columns, rows))
        return [node._replace(attributes={**node.attributes, "perm": [0, 2, 3, 1]})]
    numbers = Terms(loads=rows * columns)
    moved = [("axis", numbers), ("reshape", Terms())]
    if loss := explain_nodes(moved, [("elements", numbers)], ANY_GAIN):
        return loss
    image = Value()
    return [
        Node("Reshape", (x, g.ints([0, 1, rows, columns])), (image,), {}),
        node._replace(inputs=(image,), attributes={**node.attributes, "perm": [0, 3, 1, 2]}),
    ]


def _ignores_axes(node: Node) -> bool:
    """Return whether a node is a Reshape to sizes that copy none but the first of its input."""
    sizes = node.inputs[1].data if node.op_type == "Reshape" and node.inputs[1] else None
    return sizes is not None and bool(np.all(sizes[1:] != 0))


def _split(g: Builder, node: Node) -> Sequence[Node] | str:
    x = node.inputs[0] if node.op_type == "Transpose" else None
    if x is None:
        return ""
    shape = find_static_shape(x, g.types)
    if shape is None or g.types[x][0] is not DType.FLOAT32:
        return "must move floats of a static shape"
    order = [*node.attributes["perm"]]
    groups = _join_axes(shape, order)
    # The groups in the order of x, by their places in y.
    places = sorted(range(len(groups)), key=groups.__getitem__)
    end, last = len(groups) - 1, places[-1] if places else 0
    sizes = [prod(shape[axis] for axis in group) for group in groups]
    if last == end or _moves_one(places):
        return "the kernel is fast"
    if loss := _explain_loss(prod(shape), max(sizes[end], sizes[last])):
        return loss
    if sizes[end] >= sizes[last]:
        between = [i for i in places if i != end] + [end]
        split = _split_size(sizes[end])
        parts = [*between, end] if split else []
        middle = [*(sizes[i] for i in between[:-1]), *split]
    else:
        between = [*(i for i in range(len(groups)) if i != last), last]
        # Two neighbours that the second node does not part; there are two if the first is slow.
        at = next(i for i in range(end) if between[i] + 1 == between[i + 1])
        split = _split_size(sizes[between[at]] * sizes[between[at + 1]], sizes[between[at + 1]])
        parts = between if split else []
        middle = [*(sizes[i] for i in between[:at]), *split]
        middle += [sizes[i] for i in between[at + 2 :]]
    if not parts:
        return "ONNX Runtime would join the two Transposes"
    a, b, c, d = (Value() for _ in range(4))
    return [
        Node("Reshape", (x, g.ints([1, *(sizes[i] for i in places)])), (a,), {}),
        Node("Transpose", (a,), (b,), {"perm": [0, *(places.index(i) + 1 for i in between)]}),
        Node("Reshape", (b, g.ints(middle)), (c,), {}),
        Node("Transpose", (c,), (d,), {"perm": sorted(range(len(parts)), key=parts.__getitem__)}),
        Node("Reshape", (d, g.ints([shape[axis] for axis in order])), node.outputs, {}),
    ]


def _explain_loss(count: int, block: int) -> str:
    """Return why the nodes are not faster than a Transpose of that many numbers, "" if they are."""
    numbers, blocks = Terms(loads=count), Terms(loads=count / block, size=_FLOAT * count)
    made = [("axis", numbers), ("rows", blocks), *3 * [("reshape", Terms())]]
    return explain_nodes(made, [("elements", numbers)], MOVED)


def _join_axes(shape: Shape, order: Sequence[int]) -> list[list[int]]:
    """Return the axes of more than one element in this order; neighbours in both orders join."""
    wide = [axis for axis in range(len(shape)) if shape[axis] > 1]
    groups: list[list[int]] = []
    for axis in (axis for axis in order if shape[axis] > 1):
        follows = groups and wide.index(axis) == wide.index(groups[-1][-1]) + 1
        groups = [*groups[:-1], [*groups[-1], axis]] if follows else [*groups, [axis]]
    return groups


def _moves_one(places: Sequence[int]) -> bool:
    """Return whether the numbers without one of them are in order."""
    rest = ([i for i in places if i != moved] for moved in places)
    return any(others == sorted(others) for others in rest)


def _split_size(size: int, other: int = 0) -> list[int]:
    """Return two factors of a size, the second of which is not the other one; else none."""
    found = ([size // f, f] for f in _FACTORS if size % f == 0 and size > f != other)
    return next(found, [])
