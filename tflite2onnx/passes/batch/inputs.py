"""The inputs and the states of a network that computes a batch."""

from dataclasses import replace

from tflite2onnx.graph import Graph
from tflite2onnx.tensor import Tensor


def has_batch_axis(tensor: Tensor) -> bool:
    """Return whether the first axis of an input or output counts the samples."""
    return tensor.rank > 0 and (0 in tensor.dynamic_axes or tensor.shape[0] == 1)


def add_first_axis(tensor: Tensor) -> Tensor:
    """Return an input with one more axis in front."""
    signature = (1, *tensor.shape_signature) if tensor.dynamic_axes else ()
    return replace(tensor, shape=(1, *tensor.shape), shape_signature=signature)


def find_shared_states(graph: Graph) -> dict[Tensor, Tensor]:
    """Return the states that depend on no sample, such as masked weights, and the next states."""
    states = graph.inputs[len(graph.own_inputs) :]
    pairs = dict(zip(states, graph.outputs[len(graph.own_outputs) :], strict=True))
    reached = set(graph.own_inputs)
    before = 0
    while len(reached) > before:
        before = len(reached)
        for op in graph.ops:
            if not reached.isdisjoint(op.inputs):
                reached.update(op.outputs)
        reached.update(x for x, y in pairs.items() if y in reached)
    return {x: y for x, y in pairs.items() if x not in reached}
