"""Count the 8-bit networks whose outputs equal those of LiteRT's default kernels bit for bit.

A network is included if its operators produce quantized 8-bit values, and only DEQUANTIZE and
custom operators produce floats. LiteRT's Interpreter runs the network with its default delegate,
XNNPACK. ONNX Runtime runs the converted network on the same random inputs. Integers must be equal,
and floats within 1e-4 of their range::

    python scripts/parity.py FOLDER

If a network is not equal, each of its operators is run on LiteRT's own inputs. The script names the
first operator whose output differs, and the reason. Every network runs in its own process, because
LiteRT aborts the process on some networks.
"""

import argparse
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema

from tflite2onnx import Result, convert
from tflite2onnx.errors import VerifyError
from tflite2onnx.graph import Graph, Op
from tflite2onnx.quantization.storage import is_quantized
from tflite2onnx.reader.model import read_model
from tflite2onnx.tensor import DType
from tflite2onnx.verification.inner_tensors import InnerTensors, TensorComparison, match_places
from tflite2onnx.verification.inputs import draw_inputs, restore_layouts, store_inputs
from tflite2onnx.verification.onnx_model import open_model
from tflite2onnx.verification.runtimes import open_interpreter, run_litert, run_onnx
from tflite2onnx.verification.tolerance import Difference, Limits, compare

DEFAULT_KERNELS = "AUTO"
NARROW = {DType.INT8, DType.UINT8}
PRODUCTS = {"CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "TRANSPOSE_CONV", "BATCH_MATMUL"}

Finding = tuple[str, ...]  # "equal", "differs", "failed" or "skipped", and the details


def main() -> None:
    """Print a line for each network, and the number of equal networks."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="a folder of models, or one model")
    parser.add_argument("--samples", type=int, default=4, help="random inputs (default: 4)")
    parser.add_argument("--timeout", type=float, default=300, help="seconds for a network")
    parser.add_argument("--json", action="store_true", help="run one model in this very process")
    arguments = parser.parse_args()
    folder: Path = arguments.folder
    if arguments.json:
        print(json.dumps(finding(folder, arguments.samples)))
        return
    counts = Counter[str]()
    for path in sorted(folder.rglob("*.tflite")) if folder.is_dir() else [folder]:
        verdict, *rest = run_isolated(path, arguments.samples, arguments.timeout)
        if verdict != "skipped":
            counts[verdict] += 1
            print(verdict, path.relative_to(folder) if folder.is_dir() else path, *rest, sep="  ")
    found = counts["equal"] + counts["differs"]
    print(f"{counts['equal']} of {found} networks are equal, {counts['failed']} do not run")


def run_isolated(path: Path, samples: int, timeout: float) -> Finding:
    """Run `finding` in another process; return its result, or how the process ended."""
    command = [sys.executable, __file__, "--json", "--samples", str(samples), str(path)]
    try:
        done = subprocess.run(  # noqa: S603 - this script itself
            command, capture_output=True, text=True, timeout=timeout, check=False
        )
    except subprocess.TimeoutExpired:
        return "failed", f"it takes longer than {timeout:.0f} seconds"
    if done.returncode < 0:
        return "failed", f"signal {-done.returncode} ended the process"
    if done.returncode:
        return "failed", done.stderr.strip().rpartition("\n")[2]
    return tuple(json.loads(done.stdout))


def finding(path: Path, samples: int) -> Finding:
    """Return whether a model is equal, and the first difference."""
    graph = read_model(path).graphs[0]
    if not is_integer_network(graph):
        return ("skipped",)
    result = convert(path)
    try:
        litert = open_interpreter(path, DEFAULT_KERNELS)
    except VerifyError as error:
        return "failed", str(error)
    inputs = [draw_inputs(litert, seed) for seed in range(samples)]
    largest = max(map(distance, differences(litert, result, inputs)))
    if not largest:
        return ("equal",)
    first = next(
        find_differing_operators(path, graph, result, inputs), "every operator alone is equal"
    )
    return "differs", f"by {largest:.3g} at most", first


def is_integer_network(graph: Graph) -> bool:
    """Return whether operators produce 8-bit values, and only DEQUANTIZE produces floats."""
    made = [(op, tensor) for op in graph.ops for tensor in op.outputs]
    real = any(t.dtype.is_float and not _may_be_real(op) for op, t in made)
    return not real and any(is_quantized(t) and t.dtype in NARROW for _, t in made)


def _may_be_real(op: Op) -> bool:
    return op.custom or op.code == "DEQUANTIZE"


def differences(
    litert: Any,  # noqa: ANN401 - LiteRT's class is imported late and has no types
    result: Result,
    inputs: Iterable[Sequence[np.ndarray]],
) -> Iterator[Difference]:
    """Yield the difference of each output, for one input after another."""
    ends, details = open_model(result), litert.get_input_details()
    for arrays in inputs:
        want = run_litert(litert, arrays)
        feeds = store_inputs(ends.inputs, arrays, details) | ends.session.state
        have = restore_layouts(ends.outputs, run_onnx(ends.session, feeds))
        for end, one, other in zip(ends.outputs, want, have, strict=True):
            yield compare(end.name, one, other)


def distance(found: Difference) -> float:
    """Return the difference of an array; 0 for floats within the tolerance."""
    return 0.0 if found.dtype.startswith("float") and found.ok else found.largest


def with_more_outputs(model: bytes, indices: Iterable[int]) -> bytes:
    """Return a model whose main sub-graph has these tensors as outputs, after its own outputs.

    XNNPACK writes only the outputs of a sub-graph to memory that the interpreter can read; all
    other tensors stay in XNNPACK's internal buffers.
    """
    whole = schema.ModelT.InitFromPackedBuf(model)
    graph, builder = whole.subgraphs[0], flatbuffers.Builder()
    graph.outputs = [*dict.fromkeys([*graph.outputs, *indices])]
    builder.Finish(whole.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def find_differing_operators(
    path: Path, graph: Graph, result: Result, inputs: Sequence[Sequence[np.ndarray]]
) -> Iterator[str]:
    """Yield the operators whose outputs differ on LiteRT's own inputs, in order.

    Only the first run is examined, because only there both runtimes have the same states: the
    initial ones.
    """
    found = match_places(graph, result.skeleton)
    model = with_more_outputs(path.read_bytes(), [place.litert for place in found])
    litert = open_interpreter(model, DEFAULT_KERNELS)
    within, inside = delegated_tensors(litert), InnerTensors(result.skeleton, found, alone=True)
    indices = {place.tensor.name: place.litert for place in found}
    ends, details = open_model(result), litert.get_input_details()
    worst: dict[str, TensorComparison] = {}
    for arrays in inputs[:1] if ends.session.state else inputs:
        run_litert(litert, arrays)
        feeds = store_inputs(ends.inputs, arrays, details) | ends.session.state
        for each in inside.compare_tensors(litert, feeds, Limits(), lambda _: ()):
            before = worst.get(each.name)
            worst[each.name] = each if before is None else before.select_worse(each)
    for each in sorted(worst.values(), key=lambda each: each.index):
        if distance(each.difference):
            yield describe_difference(each, by_xnnpack=indices[each.name] in within)


def delegated_tensors(litert: Any) -> set[int]:  # noqa: ANN401 - LiteRT's classes have no types
    """Return the tensors that XNNPACK computes, by index."""
    nodes = litert._get_ops_details()  # noqa: SLF001 - no public API
    return {int(i) for node in nodes if node["op_name"] == "DELEGATE" for i in node["outputs"]}


def describe_difference(found: TensorComparison, *, by_xnnpack: bool) -> str:
    """Describe an operator, how many elements of its output differ, and the cause."""
    part = sum(found.steps[1:]) / max(1, sum(found.steps))
    largest = found.difference.reason or f"{found.difference.largest:.3g} at most"
    if by_xnnpack:
        cause = "XNNPACK computes otherwise"
    elif found.operator in PRODUCTS:
        cause = "not delegated to XNNPACK, rounds twice"
    else:
        cause = "not delegated to XNNPACK, fixed-point arithmetic or a table of LiteRT's"
    return f"operator {found.index}, {found.operator}: {part:.2%} of elements, {largest}; {cause}"


if __name__ == "__main__":
    main()
