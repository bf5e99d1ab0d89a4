"""Every input is read, because OpenVINO's provider in ONNX Runtime counts only inputs that are.

The provider passes inputs on by their places, so that an input after one that no node reads gets
the data of another one. ONNX Runtime folds the Shape of an input, so that it would not be read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tflite2onnx.builder.builder import Builder, walk_nodes
from tflite2onnx.builder.node_passes import NodePass, drop_dead_nodes
from tflite2onnx.builder.nodes import Node, Value, require_onnx_type
from tflite2onnx.emit import PLAIN_PASSES
from tflite2onnx.tensor import DType


def _read_inputs(g: Builder, nodes: Sequence[Node], results: Sequence[Value]) -> Iterator[Node]:
    """Yield the nodes, and nodes that expand a result by no element of each input not read."""
    read = {x for node in walk_nodes(nodes) for x in node.present}.union(results)
    inputs = [x for x in g.inputs if x not in read]
    if not inputs:
        yield from nodes
        return
    result, whole, sizes = results[0], Value(), []
    for x in inputs:
        row, none, size = Value(), Value(), Value()
        yield Node("Reshape", (x, g.ints([-1])), (row,), {})
        yield Node("Slice", (row, g.ints([0]), g.ints([0])), (none,), {})
        yield Node("Cast", (none,), (size,), {"to": require_onnx_type(DType.INT64)})
        sizes.append(size)
    yield Node("Concat", tuple(sizes), (whole,), {"axis": 0})
    for node in nodes:
        if result not in node.outputs:
            yield node
            continue
        same = Value()
        yield node._replace(outputs=tuple(same if y is result else y for y in node.outputs))
        yield Node("Expand", (same, whole), (result,), {})


PASSES: tuple[NodePass, ...] = (
    # A dead node reads no input.
    drop_dead_nodes,
    _read_inputs,
    *PLAIN_PASSES,
)
