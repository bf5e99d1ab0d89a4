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
    own = graph.own_outputs
    before, after = graph.inputs[len(graph.own_inputs) :], graph.outputs[len(own) :]
    observed, number = set(kept), -1
    while len(observed) > number:
        number = len(observed)
        _, alive = find_live_ops(replace(graph, outputs=(*own, *(after[i] for i in observed))))
        observed |= {i for i, state in enumerate(before) if state in alive}
    if number == len(before):
        return graph
    left = sorted(observed)
    return replace(
        graph,
        inputs=(*graph.own_inputs, *(before[i] for i in left)),
        outputs=(*own, *(after[i] for i in left)),
        initial=tuple(graph.initial[i] for i in left),
        variables=tuple(graph.variables[i] for i in left),
    )
