"""Say which updates of caches a decoder of mixed precision may make for several tokens at once.

Such a decoder has caches of float16, and rounds its scores and weights to float16. No node of ONNX
Runtime rounds them, so the operators of attention stay. The updates of the caches get
`UpdateOptions`, and start indices that are computed of the position in one way, if

1. the graph is attention that writes caches (`read_caches`) as soon as all floats are float32, and
   CAST between floats leaves them as they are: the weights of later tokens are 0;
2. nothing but such attention reads the updated caches.
"""

from dataclasses import replace

import numpy as np

from tflite2onnx.graph import Graph, Op
from tflite2onnx.made_options import ReshapeOptions, UpdateOptions
from tflite2onnx.passes.rewriter import Rewriter, make_int32
from tflite2onnx.passes.simplify import eliminate_dead_operators
from tflite2onnx.targets.onnxruntime.forms.attention.cache_attention import list_attention
from tflite2onnx.targets.onnxruntime.forms.attention.positions import CachePositions
from tflite2onnx.targets.onnxruntime.forms.attention.read_caches import find_causal_window
from tflite2onnx.tensor import DType, Tensor

_FLOATS = (DType.FLOAT16, DType.FLOAT32)


def mark_updates(graph: Graph) -> Graph:
    """Return the graph with `UpdateOptions` at updates of which several may be made at once."""
    halves = {t for t in graph.walk_tensors() if t.dtype is DType.FLOAT16}
    wide = {t: replace(t, dtype=DType.FLOAT32) for t in halves}
    widened = graph.rewrite(lambda op: [_leave_out_cast(op)]).replace_tensors(wide)
    narrow = {new: old for old, new in wide.items()}
    known: dict[int, CachePositions] = {}
    # The position and the axis of the tokens, by updated cache.
    places, products = dict[Tensor, tuple[Tensor, int]](), dict[Op, list[Op]]()
    for found in list_attention(widened):
        length = found.shape[1]
        positions = known.setdefault(length, CachePositions(graph, length))
        mask = narrow.get(found.mask, found.mask)
        window = find_causal_window(found._replace(mask=mask), positions)
        if isinstance(window, str) or positions.position is None:
            continue
        products[found.product] = [replace(found.product, inputs=())]
        for written, order in zip(found.written, found.orders, strict=True):
            places[written] = positions.position, order[2]
    rest = eliminate_dead_operators(widened.rewrite(lambda op: products.get(op, [op])))
    read = {t for op in rest.walk_ops() for t in op.inputs}
    causal = {narrow[t]: place for t, place in places.items() if t in narrow and t not in read}
    marked = {
        op: causal[op.outputs[0]] for op in graph.ops if not causal.keys().isdisjoint(op.outputs)
    }
    changed = graph.rewrite(lambda op: _mark_update(op, *marked[op]) if op in marked else [op])
    return eliminate_dead_operators(changed)


def _leave_out_cast(op: Op) -> Op:
    """Return a CAST between floats as an operator that leaves the elements as they are."""
    if not op.is_builtin("CAST") or any(t.dtype not in _FLOATS for t in op.tensors):
        return op
    return replace(op, code="RESHAPE", made=ReshapeOptions(keeps_shape=True))


def _mark_update(op: Op, position: Tensor, axis: int) -> list[Op]:
    """Return an update at start indices that are 0 but for an axis, where they are the position."""
    rw, (cache, row, _) = Rewriter(op), op.present
    place = rw.reshape(position, (1,), like=position, name="position")
    unit = make_int32("unit", np.eye(cache.rank, dtype=np.int32)[axis])
    starts = rw.op("MUL", place, unit, like=position, name="starts", shape=(cache.rank,))
    made = UpdateOptions(is_causal=True)
    return [*rw.ops, replace(op, inputs=(cache, row, starts), made=made)]
