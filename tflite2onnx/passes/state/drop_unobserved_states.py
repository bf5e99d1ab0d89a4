"""Drop states that no output depends on.

1. The seeds of Keras's dropout layers: each run computes the next seed, and no other operator reads
   the seed.
2. States that depend on each other only: no output is computed from them.
3. A state that another signature reads stays, although this signature's outputs do not need it.
"""

from collections.abc import Collection
from dataclasses import replace

from tflite2onnx.graph import Graph
from tflite2onnx.passes.simplify import find_live_ops


def drop_unobserved_states(graph: Graph, kept: Collection[int] = ()) -> Graph:
    """Return the graph without states that no output depends on, in this run or in a later run.

    `kept` are the indices of states that stay.
    """
    first_input, first_output = len(graph.own_inputs), len(graph.own_outputs)
    states = range(len(graph.initial))
    observed, number = set(kept), -1
    while len(observed) > number:
        number = len(observed)
        tensors = (*graph.own_outputs, *(graph.outputs[first_output + i] for i in observed))
        _, alive = find_live_ops(replace(graph, outputs=tensors))
        observed |= {i for i in states if graph.inputs[first_input + i] in alive}
    if number == len(states):
        return graph
    left = sorted(observed)
    return replace(
        graph,
        inputs=(*graph.own_inputs, *(graph.inputs[first_input + i] for i in left)),
        outputs=(*graph.own_outputs, *(graph.outputs[first_output + i] for i in left)),
        initial=tuple(graph.initial[i] for i in left),
        variables=tuple(graph.variables[i] for i in left),
    )
