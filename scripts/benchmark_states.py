"""The time of other nodes where a converted model reads and writes int8 inputs and states.

Inside the model these tensors are uint8. A pair of DequantizeLinear and QuantizeLinear converts
each of them. The time with other nodes is divided by the time with the pairs::

    python scripts/benchmark_states.py MODELS...

A row has the least and the largest ratio of the models, and says whether all outputs equal those
of the pairs. All forms run in turn in one process, on one thread, with the states passed to each
run. In each round the sessions are new, because the places of their memory change the times. The
median of the rounds counts, and in a round the lower quartile of the processor times.
"""

import usage  # noqa: F401 - packages may be missing

import sys
from itertools import pairwise
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnxruntime as ort
from inference import measure_inferences, open_onnx_runtime
from onnx import helper, numpy_helper

import tflite2onnx

ROUNDS, TURNS = 15, 15
OPSET = 18  # the first opset that has BitwiseXor
PAIRS = "pairs, measured against themselves"
UNSIGNED = "uint8 inputs and states"
# The nodes of each form: a type, and its constants or the type to which Cast converts. "source" and
# "target" are the types of the tensors that the pair reads and writes. ONNX Runtime removes
# Identity, and Cast to the type that a tensor already has.
CAST, REAL = ("Cast", "target"), ("Cast", "float32")
FORMS: dict[str, list[tuple[str, ...]]] = {
    UNSIGNED: [("Identity",)],
    "one Cast in place of each pair": [CAST],
    "DequantizeLinear of scale 1, and Cast": [("DequantizeLinear", "one", "source"), CAST],
    "Cast, and QuantizeLinear of scale 1": [REAL, ("QuantizeLinear", "one", "target")],
    "Cast, and Add of 128": [("Cast", "uint8"), ("Add", "uint8"), CAST],
    "Cast, and BitwiseXor of 128": [CAST, ("BitwiseXor", "target")],
}
# Zero points of -128 make int8 numbers 128 higher, and zero points of 128 make uint8 numbers 128
# lower. The bits of both are equal.
CONSTANTS = {"one": np.float32(1), "int8": np.int8(-128), "uint8": np.uint8(128)}


class Pair(NamedTuple):
    """The tensors of a pair of nodes, and the types of the source and of the target."""

    source: str
    real: str
    target: str
    types: dict[str, str]


def find_pairs(graph: onnx.GraphProto) -> list[Pair]:
    """Return the pairs that convert inputs and outputs from int8 to uint8 or back."""
    ends = {port.name for port in (*graph.input, *graph.output)}
    constants = {each.name: numpy_helper.to_array(each) for each in graph.initializer}
    first = {node.output[0]: node for node in graph.node if node.op_type == "DequantizeLinear"}
    pairs = []
    for node in graph.node:
        before = first.get(node.input[0]) if node.op_type == "QuantizeLinear" else None
        if before is None or ends.isdisjoint([*before.input, *node.output]):
            continue
        names = (*before.input[1:], *node.input[1:])
        scale, source, other, target = (constants[name] for name in names)
        if scale == other and abs(int(source) - int(target)) == 128:
            types = {"source": source.dtype.name, "target": target.dtype.name}
            pairs.append(Pair(before.input[0], node.input[0], node.output[0], types))
    return pairs


def replace_pairs(model: onnx.ModelProto, form: str) -> bytes:
    """Return a model with the nodes of a form in place of its pairs."""
    changed = onnx.ModelProto.FromString(model.SerializeToString())
    graph = changed.graph
    pairs = find_pairs(graph)
    by_target, reals = {pair.target: pair for pair in pairs}, {pair.real for pair in pairs}
    del graph.node[:]
    for node in model.graph.node:
        if node.output[0] in by_target:
            graph.node.extend(make_nodes(by_target[node.output[0]], FORMS[form]))
        elif node.output[0] not in reals:
            graph.node.append(node)
    for name, value in CONSTANTS.items():
        graph.initializer.append(numpy_helper.from_array(np.array(value), f"form/{name}"))
    converted = {*by_target, *(pair.source for pair in pairs)} if form == UNSIGNED else ()
    for port in (*graph.input, *graph.output):
        if port.name in converted:
            port.type.tensor_type.elem_type = onnx.TensorProto.UINT8
    return changed.SerializeToString()


def make_nodes(pair: Pair, steps: list[tuple[str, ...]]) -> list[onnx.NodeProto]:
    """Return nodes in place of a pair."""
    inner = [f"{pair.target}/form_{i}" for i in range(1, len(steps))]
    nodes, tensors = [], pairwise([pair.source, *inner, pair.target])
    for (kind, *words), (x, y) in zip(steps, tensors, strict=True):
        types = [pair.types.get(word, word) for word in words]
        if kind == "Cast":
            to = helper.np_dtype_to_tensor_dtype(np.dtype(types[0]))
            nodes.append(helper.make_node(kind, [x], [y], to=to))
        else:
            nodes.append(helper.make_node(kind, [x, *(f"form/{each}" for each in types)], [y]))
    return nodes


def measure_model(path: str) -> tuple[int, dict[str, tuple[float, bool]]]:
    """Return the number of pairs of a model, and the ratio and the equality of each form."""
    model = tflite2onnx.convert(path, opset=OPSET, states="required").model
    option = tflite2onnx.convert(path, opset=OPSET, states="required", activations="int8").model
    if not (count := len(find_pairs(model.graph))):
        sys.exit(f"{path} must have int8 inputs or states that are uint8 inside the ONNX model")
    models = {PAIRS: model.SerializeToString()}
    models |= {form: replace_pairs(model, form) for form in FORMS}
    models["`--activations int8`"] = option.SerializeToString()
    rounds = []
    for _ in range(ROUNDS):
        runs = [open_onnx_runtime(data, 1) for data in (models[PAIRS], *models.values())]
        rounds.append(measure_inferences(runs, TURNS))
    wanted, *outputs = (run() for run in runs)
    pairs, *times = map(median, zip(*rounds, strict=True))
    return count, {
        form: (seconds / pairs, are_equal(arrays, wanted))
        for form, seconds, arrays in zip(models, times, outputs, strict=True)
    }


def are_equal(outputs: list[Any], wanted: list[Any]) -> bool:
    """Return whether outputs are equal; uint8 numbers in place of int8 are 128 higher."""
    return all(
        np.array_equal(y if y.dtype == want.dtype else (y ^ 128).view(want.dtype), want)
        for y, want in zip(outputs, wanted, strict=True)
    )


def main(paths: list[str]) -> None:
    """Print the table."""
    counts, measured = zip(*map(measure_model, paths), strict=True)
    print(f"ONNX Runtime {ort.__version__}, {min(counts)} to {max(counts)} pairs in a model\n")
    print("| form | time | outputs |\n| --- | --- | --- |")
    for form in measured[0]:
        ratios, equal = zip(*(each[form] for each in measured), strict=True)
        outputs = "equal" if all(equal) else "not equal"
        print(f"| {form} | {min(ratios):.2f} to {max(ratios):.2f} x | {outputs} |")


if __name__ == "__main__":
    main(sys.argv[1:])
