"""Every input is read, because OpenVINO's provider in ONNX Runtime counts only inputs that are.

The provider passes inputs on by their places, so that an input after one that no node reads gets
the data of another one. ONNX Runtime folds the Shape of an input, so that it would not be read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tflite2onnx.builder.builder import Builder, eliminate_dead_nodes, find_bodies, walk_nodes
from tflite2onnx.builder.nodes import Node, Value, require_onnx_type
from tflite2onnx.emit import Rewritten, keep_nodes
from tflite2onnx.tensor import DType


def rewrite_nodes(g: Builder, nodes: Sequence[Node], results: Sequence[Value]) -> Rewritten:
    """Return the nodes of the main graph; none of their values changes its type."""
    live = eliminate_dead_nodes(nodes, results)
    every = [*walk_nodes((*g.nodes, *live))]
    bodies = (body for node in every for body in find_bodies(node).values())
    computed = {value for node in every for value in node.outputs}
    computed |= {value for body in bodies for value in body.inputs}
    read = {x for node in walk_nodes(live) for x in node.present}.union(results)
    unread = [v for v in g.types if v.data is None and v not in computed and v not in read]
    return keep_nodes(g, [*_read_inputs(g, live, unread, results[0])], results)


def _read_inputs(
    g: Builder, nodes: Sequence[Node], inputs: Sequence[Value], result: Value
) -> Iterator[Node]:
    """Yield the nodes, and nodes that expand a result by no element of each of the inputs."""
    if not inputs:
        yield from nodes
        return
    whole, sizes = Value(), []
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
