"""Several models of a bundle as one: the signatures that one step of a decoder runs.

The step becomes a graph of calls. The inputs of the graph are tokens, positions, caches, and a mask
that no model computes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from tflite2onnx.errors import BundleError
from tflite2onnx.graph import NO_OP, Graph, Model, Op, Options, Signature, copy_op
from tflite2onnx.language_steps import (
    ALL_TOKENS,
    CACHE,
    LOGITS,
    POSITIONS,
    START,
    TOKENS,
    VALID,
    BundleSignature,
    list_step,
    make_bundle_signature,
)
from tflite2onnx.op.control_flow.lowered import CALLS
from tflite2onnx.reader.containers.bundle import Bundle
from tflite2onnx.reader.model import read_model
from tflite2onnx.tensor import Tensor

_CALL = "CALL"
# The names of inputs with the same elements: of all tokens, and of all positions.
_SAME = {**dict.fromkeys(ALL_TOKENS, TOKENS[0]), **dict.fromkeys((*POSITIONS, START), POSITIONS[0])}


def connect_models(
    bundle: Bundle, name: str, model: Model, key: str
) -> tuple[Model, frozenset[str]]:
    """Return a decoder that computes what other models compute for it, and their names.

    Args:
        bundle: the models.
        name: the name of the model that decodes tokens.
        model: this model.
        key: its signature, which has the same name in the result.

    Raises:
        ModelFileError: a model cannot be read.
        BundleError: two models read or compute different forms of one tensor.
    """
    main = next(make_bundle_signature(name, s) for s in model.signatures if s.key == key)
    if list_step(main, ()) is not None:
        return model, frozenset()
    models = {n: model if n == name else read_model(bundle.models[n]) for n in bundle.models}
    others = [make_bundle_signature(n, s) for n in models for s in models[n].signatures]
    step = list_step(main, others)
    if step is None:
        return model, frozenset()
    used = dict.fromkeys(each.model for each in step)
    connected = _call_signatures(main, step, {name: models[name] for name in used})
    return connected, frozenset(used) - {name}


def _call_signatures(
    main: BundleSignature, step: Sequence[BundleSignature], models: Mapping[str, Model]
) -> Model:
    """Return a model whose only signature runs a step; it has the name of the signature `main`."""
    graphs: list[Graph] = []
    first = {}
    for name, model in models.items():
        first[name] = number = len(graphs)
        graphs += [
            replace(graph, ops=tuple(op.shift_subgraph_indices(number) for op in graph.ops))
            for graph in model.graphs
        ]
    calls = _Calls()
    for each in step:
        index = first[each.model] + each.signature.subgraph
        calls.add(each, index, graphs[index])
    outputs = {n: t for n, t in calls.values.items() if n == LOGITS or CACHE in n}
    whole = Graph(
        main.key, (*calls.inputs.values(),), (*outputs.values(),), (*calls.ops,), (*calls.tensors,)
    )
    signature = Signature(main.key, len(graphs), calls.inputs, outputs)
    return models[main.model]._replace(graphs=(*graphs, whole), signatures=(signature,))


class _Calls:
    """Builds a graph of calls; `values` are the tensors by the names that signatures read."""

    def __init__(self) -> None:
        self.inputs: dict[str, Tensor] = {}
        self.values: dict[str, Tensor] = {}
        self.ops: list[Op] = []
        self.tensors: list[Tensor] = []

    def add(self, called: BundleSignature, index: int, graph: Graph) -> None:
        """Call the graph of a signature, which is the graph `index` of the model."""
        read = {tensor: name for name, tensor in called.tensors.items()}
        made = {called.signature.outputs[name]: read for read, name in called.outputs.items()}
        if not read.keys() >= {*graph.inputs} or not made.keys() >= {*graph.outputs}:
            raise BundleError(
                f"the signature {called.key} must name all inputs and outputs of its sub-graph"
            )
        inputs = tuple(self._find_argument(read[tensor], tensor) for tensor in graph.inputs)
        outputs = tuple(
            self._add_tensor(replace(tensor, data=None), f"{called.model}/{made[tensor]}")
            for tensor in graph.outputs
        )
        self.ops.append(Op(_CALL, len(self.ops), inputs, outputs, Options({CALLS[_CALL]: index})))
        self.values |= {made[t]: result for t, result in zip(graph.outputs, outputs, strict=True)}

    def _find_argument(self, name: str, tensor: Tensor) -> Tensor:
        """Return the value of an input, in the shape of the input."""
        if name == VALID:  # each run has one token, which is part of the text
            return self._add_tensor(replace(tensor, data=np.ones(tensor.shape, bool)), name)
        name = _SAME.get(name, name)
        if name not in self.values:
            self.inputs[name] = self.values[name] = self._add_tensor(tensor, name)
        value = self.values[name]
        if (value.dtype, value.elements) != (tensor.dtype, tensor.elements):
            raise BundleError(
                f"{name} must be {tensor.dtype.label}{list(tensor.shape)} in all models of a"
                f" decoder, got {value.dtype.label}{list(value.shape)}"
            )
        if value.shape == tensor.shape:
            return value
        argument = self._add_tensor(tensor, f"{name}/shaped")
        self.ops.append(copy_op(NO_OP, value, argument, resizes=False))
        return argument

    def _add_tensor(self, tensor: Tensor, name: str) -> Tensor:
        """Return a tensor of a type under another name."""
        self.tensors.append(replace(tensor, name=name, is_variable=False))
        return self.tensors[-1]
